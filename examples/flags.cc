// SPDX-License-Identifier: Apache-2.0
#include "flags.h"

#include "cli_main.h"

namespace examples {
namespace {

template <class T>
void add_value(CLI::App& app, const char* name, T& value, const char* meaning,
               const FlagOptions& options) {
  CLI::Option* const option = app.add_option(name, value, meaning);
  if (options.at_least > -std::numeric_limits<double>::infinity()) {
    option->check(at_least(options.at_least));
  }
  if (!options.one_of.empty()) option->check(CLI::IsMember(options.one_of));
  if (!options.variable.empty()) option->envname(options.variable);
}

}  // namespace

void Flags::add(const char* name, int& value, const char* meaning, const FlagOptions& options) {
  add_value(app_, name, value, meaning, options);
}
void Flags::add(const char* name, int64_t& value, const char* meaning, const FlagOptions& options) {
  add_value(app_, name, value, meaning, options);
}
void Flags::add(const char* name, uint64_t& value, const char* meaning,
                const FlagOptions& options) {
  add_value(app_, name, value, meaning, options);
}
void Flags::add(const char* name, double& value, const char* meaning, const FlagOptions& options) {
  add_value(app_, name, value, meaning, options);
}
void Flags::add(const char* name, std::string& value, const char* meaning,
                const FlagOptions& options) {
  add_value(app_, name, value, meaning, options);
}
void Flags::add(const char* name, bool& value, const char* meaning) {
  app_.add_flag(name, value, meaning);
}

int run_with_flags(int argc, char** argv, const std::string& purpose,
                   const std::function<void(Flags&)>& declare, const std::function<int()>& work) {
  return run_cli(
      argc, argv, purpose,
      [&](CLI::App& app) {
        Flags flags(app);
        declare(flags);
      },
      work);
}

}  // namespace examples
