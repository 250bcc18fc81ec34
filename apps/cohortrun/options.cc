// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <sched.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>

#include "cohort/base/strings.h"
#include "network.h"

namespace cohortrun {
namespace {

using cohort::str_cat;

constexpr int kMostProcesses = 10'000;
constexpr int kDefaultPort = 29'400;

// What was written, before it is known what it means.
struct Texts {
  std::string nodes = "1";
  std::string processes = {};
  std::string endpoint = {};
  std::string backend = {};
  std::string conf = {};
  std::string master_addr = "127.0.0.1";
  int master_port = 29'500;
  std::string redirects = {};
  std::string tee = {};
  std::string hostfile = {};
  std::string hosts = {};
  std::string ssh = "ssh";
  std::vector<std::string> exported = {};
  int grace = 30;
  int timeout = 300;
  std::string role = "default";
  std::string local_ranks = {};
  double monitor_interval = 0;
  std::map<std::string, std::string> ignored = {};
  bool standalone = false;
  bool no_python = false;
};

// "--max-restarts" as "--max-restarts,--max_restarts", with PET_MAX_RESTARTS as its default.
template <class T>
CLI::Option* add(CLI::App& app, const std::string& name, T& value, const std::string& help,
                 const std::string& other_names = {}) {
  std::string under = name;
  std::replace(under.begin() + 2, under.end(), '-', '_');
  std::string names = name;
  if (under != name) names += "," + under;
  if (!other_names.empty()) names += "," + other_names;
  CLI::Option* option = nullptr;
  if constexpr (std::is_same_v<T, bool>) {
    option = app.add_flag(names, value, help);
  } else {
    option = app.add_option(names, value, help);
  }
  std::string variable = "PET_" + under.substr(2);
  std::transform(variable.begin(), variable.end(), variable.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return option->envname(variable);
}

void declare_tasks(CLI::App& app, Options& o, Texts& t) {
  const auto count = CLI::Range(0, kMostProcesses);
  app.add_option("--workers", o.tasks.workers, "Processes of the job 'worker', over all hosts")
      ->check(count);
  app.add_option("--ps", o.tasks.ps, "Processes of the job 'ps'")->check(count);
  app.add_flag("--chief", o.tasks.chief, "One more, of the job 'chief'");
  app.add_flag("--evaluator", o.tasks.evaluator, "One more, of the job 'evaluator'");
  add(app, "--nproc-per-node", t.processes, "Workers on each host: a number, or auto", "-n");
  app.add_option("--cpus-per-worker", o.local.cpus_per_task,
                 "Cores that each process is kept on; by default an equal share")
      ->check(CLI::Range(1, 1024));
  app.add_flag("!--no-bind", o.local.bind, "Keep no process on cores of its own");
}

void declare_nodes(CLI::App& app, Options& o, Texts& t) {
  add(app, "--nnodes", t.nodes, "Hosts on each of which cohortrun is started");
  add(app, "--node-rank", o.node_rank, "Which of them this is; by default in order of coming")
      ->check(CLI::Range(0, kMostProcesses));
  add(app, "--rdzv-endpoint", t.endpoint, "host:port of the first of them");
  add(app, "--rdzv-backend", t.backend, "static or c10d (which are the same here)")
      ->check(CLI::IsMember({"static", "c10d"}));
  add(app, "--rdzv-id", o.job, "The job's name: others' nodes are refused");
  add(app, "--rdzv-conf", t.conf, "timeout=SECONDS or join_timeout=SECONDS");
  add(app, "--rdzv-timeout", t.timeout, "Seconds until all hosts have come")
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
  add(app, "--master-addr", t.master_addr, "As the endpoint's host")->capture_default_str();
  add(app, "--master-port", t.master_port, "As the endpoint's port")
      ->check(CLI::Range(1, 65'535))
      ->capture_default_str();
  add(app, "--standalone", t.standalone, "This host alone");
  add(app, "--hostfile", t.hostfile, "File with hosts, 'name slots=2' each, reached by ssh");
  app.add_option("--hosts,-H", t.hosts, "The same as name:2,name:2");
  app.add_option("--ssh", t.ssh, "Program with flags that connects to hosts")
      ->capture_default_str();
  app.add_option("--remote-cohortrun", o.remote_program,
                 "cohortrun on those hosts; by default where it is on this one");
  app.add_option("--export,-x", t.exported,
                 "NAME or NAME=VALUE: a variable for processes on other hosts; COHORT_* go there "
                 "anyway");
  app.add_flag("--agent", o.is_agent, "For ssh: do what another host's cohortrun says")->group("");
  add(app, "--local-addr", o.local_addr, "Where other hosts find this one's processes");
  app.add_option("--interface", o.interface, "The same by the name of a network interface");
  app.add_option("--port-base", o.local.port_base,
                 "The first process of a host listens here, each other one port further; by "
                 "default at free ports")
      ->check(CLI::Range(1024, 64'000));
  app.add_flag("--tls", o.settings.security.tls,
               "Certificates of the job's own for its processes, on one host, too");
  app.add_flag("--allow-insecure", o.settings.security.allow_insecure,
               "Nothing is encrypted between hosts, whose network you trust");
}

void declare_life(CLI::App& app, Options& o, Texts& t) {
  static const std::map<std::string, RestartPolicy> kPolicies = {
      {"never", RestartPolicy::kNever},
      {"on-failure", RestartPolicy::kOnFailure},
      {"exit-code", RestartPolicy::kExitCode}};
  static const std::map<std::string, Prefix> kPrefixes = {{"task", Prefix::kTask},
                                                          {"mpi", Prefix::kMpi},
                                                          {"torchrun", Prefix::kTorchrun},
                                                          {"none", Prefix::kNone}};
  add(app, "--max-restarts", o.settings.max_restarts,
      "How often all processes are started again when one has failed")
      ->check(CLI::Range(0, 1'000'000));
  app.add_option("--restart-policy", o.settings.policy,
                 "never, on-failure, or exit-code (of at least 128)")
      ->transform(CLI::CheckedTransformer(kPolicies));
  app.add_option("--grace", t.grace, "Seconds between SIGTERM and SIGKILL")
      ->check(CLI::Range(0, 86'400))
      ->capture_default_str();
  add(app, "--log-dir", o.local.output.log_dir,
      "Folder of RUN/attempt_N/TASK/stdout.log and stderr.log");
  add(app, "--redirects", t.redirects,
      "Streams that go into files only: 1 output, 2 errors, 3 both, or 0:1,1:3 by local rank",
      "-r");
  add(app, "--tee", t.tee, "The same of those that go into files as well", "-t");
  app.add_option("--prefix", o.local.output.prefix,
                 "Before each line: task ([worker 0] ), mpi, torchrun or none")
      ->transform(CLI::CheckedTransformer(kPrefixes));
  add(app, "--no-python", t.no_python, "Of torchrun; programs are none of Python's anyway");
}

// What scripts of torchrun say beside.
void declare_torchruns(CLI::App& app, Texts& t) {
  add(app, "--role", t.role, "ROLE_NAME of the processes")->capture_default_str();
  add(app, "--local-ranks-filter", t.local_ranks,
      "Local ranks whose output the console shows, as 0,2; by default all");
  add(app, "--monitor-interval", t.monitor_interval,
      "Of torchrun; the end of a process is seen at once here")
      ->check(CLI::NonNegativeNumber);
  for (const char* name : {"--start-method", "--event-log-handler", "--logs-specs",
                           "--numa-binding", "--signals-to-handle"}) {
    add(app, name, t.ignored[name], "Of torchrun; has no meaning here")->group("");
  }
  for (const char* name : {"-m,--module", "--run-path"}) {
    app.add_flag_callback(
           name,
           [name] {
             throw CLI::ValidationError(
                 name,
                 "expected a program, got a module or script of Python's, which torchrun "
                 "starts");
           },
           "Of torchrun, for Python's; refused")
        ->group("");
  }
}

// Says what was asked for and is not done.
void tell_ignored(const Texts& t) {
  for (const auto& [name, value] : t.ignored) {
    if (value.empty()) continue;
    std::fprintf(stderr, "cohortrun: %s %s has no meaning here, and is ignored\n", name.c_str(),
                 value.c_str());
  }
}

// "0,2", or as torchrun's help has it "[0,2]".
std::vector<int> local_ranks_of(std::string text) {
  std::erase_if(text, [](char c) { return c == '[' || c == ']' || c == ' '; });
  std::vector<int> ranks;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    if (part.empty() || part.size() > 5 ||
        part.find_first_not_of("0123456789") != std::string::npos) {
      throw std::runtime_error(
          str_cat("expected --local-ranks-filter to be ranks as 0,2, got ", text));
    }
    ranks.push_back(std::stoi(part));
  }
  return ranks;
}

// "3", or "0:1,1:3" by local rank.
void read_streams(const char* flag, const std::string& text, int* all, std::map<int, int>* some) {
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t colon = part.find(':');
    const std::string value = colon == std::string::npos ? part : part.substr(colon + 1);
    const std::string rank = colon == std::string::npos ? "0" : part.substr(0, colon);
    const bool is_right = value.size() == 1 && value[0] >= '0' && value[0] <= '3' &&
                          !rank.empty() && rank.size() < 6 &&
                          rank.find_first_not_of("0123456789") == std::string::npos;
    if (!is_right) {
      throw std::runtime_error(
          str_cat("expected ", flag, " to be 0 to 3, or 0:1,1:3 by local ", "rank, got ", text));
    }
    if (colon == std::string::npos) {
      *all = value[0] - '0';
    } else {
      (*some)[std::stoi(rank)] = value[0] - '0';
    }
  }
}

void read_outputs(const Texts& t, OutputOptions* output) {
  read_streams("--redirects", t.redirects, &output->redirects, &output->redirects_of);
  read_streams("--tee", t.tee, &output->tee, &output->tee_of);
  const bool any = !t.redirects.empty() || !t.tee.empty();
  if (output->log_dir.empty() && (output->redirects != 0 || output->tee != 0 ||
                                  !output->redirects_of.empty() || !output->tee_of.empty())) {
    throw std::runtime_error("expected --log-dir with --redirects or --tee, got none");
  }
  if (!any) output->tee = 3;
}

// What --rdzv-conf says that is not said of something else here.
void read_conf(const std::string& text, int* timeout) {
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t equals = part.find('=');
    const std::string key = part.substr(0, equals);
    if (key != "timeout" && key != "join_timeout") continue;
    const std::string value = equals == std::string::npos ? "" : part.substr(equals + 1);
    if (value.empty() || value.size() > 6 ||
        value.find_first_not_of("0123456789") != std::string::npos) {
      throw std::runtime_error(str_cat("expected --rdzv-conf ", key, "=SECONDS, got ", part));
    }
    *timeout = std::max(1, std::stoi(value));
  }
}

void read_hosts(const Texts& t, Options* o) {
  std::string text = t.hosts;
  std::replace(text.begin(), text.end(), ',', '\n');
  if (!t.hostfile.empty()) {
    std::ifstream file(t.hostfile);
    std::stringstream bytes;
    bytes << file.rdbuf();
    if (!file) throw std::runtime_error(str_cat("expected to read --hostfile ", t.hostfile));
    text = bytes.str();
  }
  if (!t.hostfile.empty() || !t.hosts.empty()) o->hosts = hosts_of(text);
  std::istringstream words(t.ssh);
  for (std::string word; words >> word;) o->ssh.push_back(word);
  if (o->ssh.empty()) throw std::runtime_error("expected --ssh to be a program, got nothing");
  if (o->remote_program.empty()) {
    o->remote_program = std::filesystem::read_symlink("/proc/self/exe").string();
  }
}

// How many tasks of which job, and where.
void read_tasks(const Texts& t, Options* o) {
  o->nodes = nodes_of(t.nodes);
  if (t.standalone) o->nodes = 1;
  const bool by_job = o->tasks.workers > 0 || o->tasks.ps > 0 || o->tasks.chief;
  if (o->nodes > 1 && (by_job || o->tasks.evaluator || !o->hosts.empty())) {
    throw std::runtime_error(
        "expected --nproc-per-node with --nnodes; --workers, --ps, --chief and --evaluator are "
        "for one host, or for --hostfile, got both");
  }
  // In a container PET_NPROC_PER_NODE is there for everybody.
  if (!t.processes.empty() && !by_job) o->nproc_per_node = processes_of(t.processes);
  if (o->nodes > 1 && o->nproc_per_node == 0) o->nproc_per_node = 1;
  if (o->nodes == 1 && o->hosts.empty() && !by_job) o->tasks.workers = o->nproc_per_node;
}

void read_endpoint(const Texts& t, Options* o) {
  o->endpoint = t.endpoint.empty() ? str_cat(t.master_addr, ":", t.master_port) : t.endpoint;
  // Also of one: each of several hosts would train alone if they were not told how many they are.
  if (o->node_rank >= o->nodes && !t.standalone) {
    throw std::runtime_error(
        str_cat("expected --node-rank below --nnodes ", o->nodes, ", got ", o->node_rank));
  }
  if (o->nodes == 1) return;
  const Endpoint at = endpoint_of(o->endpoint, kDefaultPort, "--rdzv-endpoint");
  o->endpoint = str_cat(at.host, ":", at.port);
  const SecuritySettings& security = o->settings.security;
  const bool is_proved = !security.own.token.empty() || security.own.has_tls();
  if (!security.allow_insecure && !is_proved && !is_loopback(at.host)) {
    throw std::runtime_error(str_cat(
        "--rdzv-endpoint ", at.host,
        " is beyond this host: give all nodes one secret in COHORT_JOB_TOKEN_FILE or "
        "COHORT_JOB_TOKEN (openssl rand -hex 32 makes one), by which they know each other and "
        "encrypt; or start them over ssh (--hostfile); or say --allow-insecure "
        "(COHORT_ALLOW_INSECURE=1) in a network that you trust"));
  }
}

// Errors: cohort::Error for variables that are wrong.
void read_security(Options* o) {
  SecuritySettings& security = o->settings.security;
  if (o->is_agent) return;
  security.own = cohort::internal::rpc::security_from_environment();
  security.allow_insecure = security.allow_insecure || security.own.allow_insecure;
  if (security.tls && security.allow_insecure) {
    throw std::runtime_error("expected --tls or --allow-insecure, got both");
  }
}

// What has a way of its own to the other hosts, and leads to files of this one.
bool is_secret(std::string_view variable) {
  return variable.rfind("COHORT_JOB_TOKEN", 0) == 0 || variable.rfind("COHORT_JOB_ID=", 0) == 0;
}

// Of this process, for those on other hosts.
void read_exports(const Texts& t, Options* o) {
  for (char** each = environ; *each != nullptr; ++each) {
    if (std::string_view(*each).rfind("COHORT_", 0) != 0 || is_secret(*each)) continue;
    o->local.environment.emplace_back(*each);
  }
  for (const std::string& each : t.exported) {
    const char* value = std::getenv(each.c_str());
    if (each.find('=') != std::string::npos) {
      o->local.environment.push_back(each);
    } else if (value != nullptr) {
      o->local.environment.push_back(str_cat(each, "=", value));
    } else {
      throw std::runtime_error(str_cat("expected --export of a variable that is set, got ", each));
    }
  }
}

void read_address(Options* o) {
  if (o->interface.empty()) return;
  if (o->local_addr.empty()) o->local_addr = address_of_interface(o->interface);
  // For what else may look for one.
  for (const char* name : {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"}) {
    if (std::getenv(name) == nullptr) {
      o->local.environment.push_back(str_cat(name, "=", o->interface));
    }
  }
}

Options understood(Options o, const Texts& t, std::vector<std::string> command) {
  int timeout = t.timeout;
  read_conf(t.conf, &timeout);
  o.settings.nodes_timeout = std::chrono::seconds(timeout);
  o.local.processes.grace = std::chrono::seconds(t.grace);
  o.local.processes.command = std::move(command);
  read_outputs(t, &o.local.output);
  o.local.output.shown = local_ranks_of(t.local_ranks);
  o.local.environment.push_back(str_cat("ROLE_NAME=", t.role));
  tell_ignored(t);
  read_hosts(t, &o);
  read_tasks(t, &o);
  read_security(&o);
  read_endpoint(t, &o);
  read_exports(t, &o);
  read_address(&o);
  return o;
}

}  // namespace

int nodes_of(const std::string& text) {
  const std::size_t colon = text.find(':');
  const auto number = [&](const std::string& part) {
    if (part.empty() || part.size() > 5 ||
        part.find_first_not_of("0123456789") != std::string::npos || std::stoi(part) < 1) {
      throw std::runtime_error(str_cat("expected --nnodes to be a number of hosts, got ", text));
    }
    return std::stoi(part);
  };
  const int least = number(text.substr(0, colon));
  const int most = colon == std::string::npos ? least : number(text.substr(colon + 1));
  if (least != most) {
    throw std::runtime_error(
        str_cat("expected --nnodes to be one number, got ", text,
                ": workers cannot come and go in a running job yet. Say --nnodes ", most,
                " and --max-restarts: a host that comes back takes part again"));
  }
  return least;
}

int processes_of(const std::string& text) {
  if (text == "auto" || text == "cpu") {
    cpu_set_t set;
    CPU_ZERO(&set);
    return ::sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
  }
  if (text.empty() || text.size() > 4 ||
      text.find_first_not_of("0123456789") != std::string::npos) {
    throw std::runtime_error(
        str_cat("expected --nproc-per-node to be a number, auto or cpu, got ", text));
  }
  return std::stoi(text);
}

std::vector<Host> hosts_of(const std::string& text) {
  std::vector<Host> hosts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    line = line.substr(0, line.find('#'));
    std::istringstream words(line);
    std::string name;
    std::string slots = "1";
    words >> name;
    if (name.empty()) continue;
    if (const std::size_t colon = name.find(':'); colon != std::string::npos) {
      slots = name.substr(colon + 1);
      name.resize(colon);
    }
    bool all_known = true;
    for (std::string word; words >> word;) {
      if (word.rfind("slots=", 0) == 0) {
        slots = word.substr(6);
      } else {  // Open MPI's bound of what it may start beyond the slots
        all_known &= word.rfind("max_slots=", 0) == 0 || word.rfind("max-slots=", 0) == 0;
      }
    }
    // A name that begins with a dash would be a flag of ssh.
    if (name.empty() || name[0] == '-' || slots.empty() || slots.size() > 4 || !all_known ||
        slots.find_first_not_of("0123456789") != std::string::npos || std::stoi(slots) < 1) {
      throw std::runtime_error(str_cat("expected a host as 'name slots=2', got \"", line, "\""));
    }
    const auto same = std::find_if(hosts.begin(), hosts.end(),
                                   [&](const Host& each) { return each.name == name; });
    if (same == hosts.end()) {
      hosts.push_back({.name = name, .slots = std::stoi(slots)});
    } else {  // a line for each slot, as some schedulers write it
      same->slots += std::stoi(slots);
    }
  }
  if (hosts.empty()) throw std::runtime_error("expected at least 1 host, got none");
  return hosts;
}

std::optional<Options> read_options(int argc, char** argv, int* exit_code) {
  CLI::App app(
      "Starts a program in several processes, each with its TF_CONFIG:\n"
      "  cohortrun --workers 2 -- ./program --its-flags");
  Options options;
  Texts texts;
  declare_tasks(app, options, texts);
  declare_nodes(app, options, texts);
  declare_life(app, options, texts);
  declare_torchruns(app, texts);
  app.prefix_command();
  std::vector<std::string> command;
  try {
    app.parse(argc, argv);
    command = app.remaining();
    if (!command.empty() && command.front() == "--") command.erase(command.begin());
    if (!command.empty() && command.front().starts_with('-') && app.remaining().front() != "--") {
      throw CLI::ExtrasError({command.front()});
    }
    if (command.empty() && !options.is_agent) throw CLI::RequiredError("command");
  } catch (const CLI::ParseError& e) {
    const int code = app.exit(e);
    *exit_code = code == 0 ? 0 : 2;
    return {};
  }
  return understood(std::move(options), texts, std::move(command));
}

}  // namespace cohortrun
