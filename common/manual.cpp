#include "common/manual.h"

#include <CLI/CLI.hpp>
#include <sstream>

#include "common/vector.h"
#include "common/version.h"

namespace ff {
namespace {

// Text in roff: hyphens that can be copied, and no requests at the beginning of a line.
std::string roff(const std::string& text) {
  std::string escaped;
  for (const char letter : text) {
    const bool begins = escaped.empty() || escaped.back() == '\n';
    if (letter == '\\') escaped += "\\e";
    else if (letter == '-') escaped += "\\-";
    else if (letter == '\n') escaped += "\n.br\n";
    else if (begins && (letter == '.' || letter == '\'')) escaped += std::string("\\&") + letter;
    else escaped += letter;
  }
  return escaped;
}

Vector<const CLI::Option*> options_of(const CLI::App& app) {
  Vector<const CLI::Option*> options;
  for (const CLI::Option* option : app.get_options())
    if (!option->get_group().empty() && !option->get_lnames().empty()) options.push_back(option);
  return options;
}

Vector<const CLI::App*> commands_of(const CLI::App& app) {
  Vector<const CLI::App*> commands;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) commands.push_back(command);
  return commands;
}

// The words that an option takes, from its type's text, "TEXT:{delta,full}"; none where it takes anything else.
Vector<std::string> words_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t begin = type.find('{'), end = type.rfind('}');
  Vector<std::string> words;
  if (begin == std::string::npos || end == std::string::npos || end < begin) return words;
  std::istringstream list(type.substr(begin + 1, end - begin - 1));
  for (std::string word; std::getline(list, word, ',');) words.push_back(word);
  return words;
}

std::string joined(const Vector<std::string>& words, const std::string& separator) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

std::string options_page(const CLI::App& app) {
  std::string page;
  for (const CLI::Option* option : options_of(app)) {
    const Vector<std::string> words = words_of(*option);
    std::string value;
    if (takes_value(*option)) value = words.empty() || words.size() > 6 ? "VALUE" : joined(words, "|");
    page += ".TP\n\\fB" + roff("--" + option->get_lnames()[0]) + "\\fR" +
            (value.empty() ? "" : " \\fI" + roff(value) + "\\fR") + "\n" + roff(option->get_description());
    if (option->get_required()) page += " (required)";
    if (!option->get_default_str().empty()) page += roff(" (default: " + option->get_default_str() + ")");
    page += "\n";
  }
  return page;
}

Vector<std::string> flags_of(const CLI::App& app) {
  Vector<std::string> flags;
  for (const CLI::Option* option : options_of(app)) flags.push_back("--" + option->get_lnames()[0]);
  return flags;
}

// "command flag) words", a line for each flag that takes words.
std::string completion_cases(const CLI::App& app, const std::string& command) {
  std::string cases;
  for (const CLI::Option* option : options_of(app)) {
    if (!takes_value(*option)) continue;
    const Vector<std::string> words = words_of(*option);
    cases += "    \"" + command + " --" + option->get_lnames()[0] + "\") " +
             (words.empty() ? "return" : "words=\"" + joined(words, " ") + "\"") + " ;;\n";
  }
  return cases;
}

}  // namespace

std::string manual_page(const CLI::App& app) {
  const std::string& name = app.get_name();
  std::string page = ".TH " + name + " 1 \"\" \"" + roff(name + " " + version_text()) +
                     "\" \"User Commands\"\n.SH NAME\n" + roff(name) + " \\- " + roff(app.get_description()) +
                     "\n.SH SYNOPSIS\n.B " + roff(name) + "\n[options]\n";
  for (const CLI::App* command : commands_of(app))
    page += ".br\n.B " + roff(name + " " + command->get_name()) + "\n[options]\n";
  page += ".SH OPTIONS\n" + options_page(app);
  if (!commands_of(app).empty()) page += ".SH COMMANDS\n";
  for (const CLI::App* command : commands_of(app))
    page +=
        ".SS " + roff(command->get_name()) + "\n" + roff(command->get_description()) + "\n" + options_page(*command);
  if (!app.get_footer().empty()) page += ".SH EXIT STATUS\n" + roff(app.get_footer()) + "\n";
  return page;
}

std::string bash_completion(const CLI::App& app) {
  const std::string& name = app.get_name();
  Vector<std::string> commands;
  for (const CLI::App* command : commands_of(app)) commands.push_back(command->get_name());
  std::string cases = completion_cases(app, ""), flags;
  for (const CLI::App* command : commands_of(app)) {
    cases += completion_cases(*command, command->get_name());
    flags += "    \"" + command->get_name() + " \"*) words=\"" + joined(flags_of(*command), " ") + "\" ;;\n";
  }
  const std::string find_command =
      commands.empty() ? ""
                       : "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n    case \"$word\" in " +
                             joined(commands, "|") + ") command=$word ;; esac\n  done\n";
  return "# Completion of " + name + " for bash: written by " + name + " --completion.\n_" + name +
         "() {\n  local command= word words=\n" + find_command +
         "  case \"$command ${COMP_WORDS[COMP_CWORD-1]}\" in\n" + cases + flags + "    *) words=\"" +
         joined(commands, " ") + (commands.empty() ? "" : " ") + joined(flags_of(app), " ") +
         "\" ;;\n  esac\n  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\")\n}\n" +
         "complete -o default -F _" + name + " " + name + "\n";
}

std::optional<std::string> describe_command_line(const CLI::App& app, int argc, const char* const* argv) {
  const std::string asked = argc == 2 ? argv[1] : "";
  if (asked == "--manual") return manual_page(app);
  if (asked == "--completion") return bash_completion(app);
  return std::nullopt;
}

}  // namespace ff
