// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "cohort/base/check.h"
#include "cohort/base/display.h"
#include "cohort/base/strings.h"
#include "cohort/coordinator/status/status_page.h"

namespace cohort::internal::coordinator {
namespace {

using base::duration_text;
using base::rate_text;
using Parsed = nlohmann::json;

constexpr std::string_view kHead = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="2">
<title>Cohort: status</title>
<style>
:root { color-scheme: light dark; --line: #8884; --weak: #777; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 72rem; padding: 0 1rem; }
h1 { font-size: 1.3rem; margin: 0 0 .2rem; }
h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
p { margin: .2rem 0; color: var(--weak); }
dl { display: flex; flex-wrap: wrap; gap: .6rem 2rem; margin: 1rem 0 0; }
dt { color: var(--weak); font-size: .85rem; }
dd { margin: 0; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; white-space: nowrap; }
th { color: var(--weak); font-weight: normal; font-size: .85rem; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.number + :not(.number) { padding-left: .8rem; }
td.text { width: 100%; min-width: 18rem; white-space: pre-wrap; overflow-wrap: anywhere; }
.alive::before { content: "\25cf\00a0"; color: #2a9d4a; }
.awaited::before { content: "\25cb\00a0"; color: #b58900; }
.lost::before, .gone::before { content: "\2715\00a0"; color: #d33; }
.lost, .gone { font-weight: 600; }
</style>
</head>
<body>
)";

// Of a text in the answer, which is another's. Control characters have no picture.
std::string escaped(const Parsed& text) {
  std::string out = text.get<std::string>();
  std::replace_if(
      out.begin(), out.end(),
      [](unsigned char c) { return (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f; }, ' ');
  return base::markup_escaped(out);
}

std::string mebibytes(double bytes) { return base::fixed_text(bytes / (1 << 20), 0) + " MiB"; }

std::string count_text(const Parsed& of, const char* name) {
  return of.contains(name) ? std::to_string(of.at(name).get<uint64_t>()) : "";
}

std::string number_cell(const std::string& text) {
  return "<td class=\"number\">" + text + "</td>";
}

std::string fact(const char* name, const std::string& value) {
  return std::string("<div><dt>") + name + "</dt><dd>" + value + "</dd></div>\n";
}

std::string groups_text(const Parsed& task) {
  std::string out;
  if (!task.contains("groups")) return out;
  for (const Parsed& each : task.at("groups")) {
    if (!out.empty()) out += "; ";
    out += str_cat("group ", count_text(each, "group"), " ", each.at("role").get<std::string>(),
                   ", epoch ", count_text(each, "epoch"));
    if (each.at("role") != "primary") continue;
    out += str_cat(", ", count_text(each, "backups"), " backups, lag ", count_text(each, "lag"));
  }
  return base::markup_escaped(out);
}

std::string facts(const Parsed& all) {
  const Parsed& functions = all.at("functions");
  const Parsed& rows = all.at("rows");
  std::string out = "<dl>\n";
  out += fact("queued", count_text(functions, "queued"));
  out += fact("running", count_text(functions, "running"));
  out += fact("done", count_text(functions, "done"));
  out += fact("failed", count_text(functions, "failed"));
  out += fact("run again", count_text(functions, "again"));
  out += fact("functions/s", rate_text(functions.at("per_second")));
  out += fact("rows read/s", rate_text(rows.at("read_per_second")));
  out += fact("rows changed/s", rate_text(rows.at("changed_per_second")));
  return out + "</dl>\n";
}

std::string task_row(const Parsed& task) {
  const std::string state = escaped(task.at("state"));
  const bool is_known = task.contains("heard_s");
  const bool is_server = task.contains("groups");
  std::string out = "<tr><td>" + escaped(task.at("task")) + "</td><td>" +
                    escaped(task.at("address")) + "</td><td class=\"" + state + "\">" + state +
                    "</td>";
  out += number_cell(state == "alive" ? duration_text(task.at("alive_s")) : "");
  out += number_cell(is_known ? duration_text(task.at("heard_s")) : "");
  out += number_cell(count_text(task, "starts"));
  out += number_cell(is_known ? mebibytes(task.at("memory_bytes")) : "");
  out += number_cell(count_text(task, "running")) + number_cell(count_text(task, "done"));
  out += number_cell(is_server ? rate_text(task.at("rows_read_per_second")) : "");
  out += number_cell(is_server ? rate_text(task.at("rows_changed_per_second")) : "");
  return out + "<td>" + groups_text(task) + "</td></tr>\n";
}

std::string tasks_table(const Parsed& all) {
  std::string out =
      "<h2>Tasks</h2>\n<div class=\"scroll\"><table id=\"tasks\">\n<thead><tr><th>task</th>"
      "<th>address</th><th>state</th><th class=\"number\">alive for</th>"
      "<th class=\"number\">heard ago</th><th class=\"number\">starts</th>"
      "<th class=\"number\">memory</th><th class=\"number\">running</th>"
      "<th class=\"number\">done</th><th class=\"number\">rows read/s</th>"
      "<th class=\"number\">rows changed/s</th><th>replicas</th></tr></thead>\n<tbody>\n";
  for (const Parsed& task : all.at("tasks")) out += task_row(task);
  return out + "</tbody></table></div>\n";
}

std::string errors_table(const Parsed& all) {
  std::string out = "<h2>Last errors</h2>\n";
  if (all.at("errors").empty()) return out + "<p>none</p>\n";
  out +=
      "<div class=\"scroll\"><table id=\"errors\">\n<thead><tr><th>time (UTC)</th><th>task</th>"
      "<th>what</th></tr></thead>\n<tbody>\n";
  for (const Parsed& each : all.at("errors")) {
    out += str_cat("<tr><td>", escaped(each.at("time")), "</td><td>", escaped(each.at("task")),
                   "</td><td class=\"text\">", escaped(each.at("text")), "</td></tr>\n");
  }
  return out + "</tbody></table></div>\n";
}

}  // namespace

std::string status_html(const std::string& json) {
  try {
    const Parsed all = Parsed::parse(json);
    std::string out(kHead);
    out += "<h1>Cohort: a job with parameter servers</h1>\n<p>coordinator on " +
           escaped(all.at("host")) + ", process " + count_text(all, "pid") + ", for " +
           duration_text(all.at("up_s")) + "; " + count_text(all, "replicas") +
           (all.at("replicas") == 1 ? " copy" : " copies") + " of each variable</p>\n";
    return out + facts(all) + tasks_table(all) + errors_table(all) + "</body>\n</html>\n";
  } catch (const Parsed::exception& e) {
    throw InvalidArgument(
        std::string("[status_html] expected what StatusBoard::json() says, got: ") + e.what());
  }
}

}  // namespace cohort::internal::coordinator
