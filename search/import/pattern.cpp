#include "search/import/pattern.h"

#include <cctype>
#include <cmath>

namespace ff::importing {

Pattern::Pattern(const std::string& text) : root_{Kind::value, {}, {}} {
  size_t at = 0;
  root_ = parse(text, at);
  assert(at == text.size() && root_.kind == Kind::node);
}

Pattern::Term Pattern::parse(const std::string& text, size_t& at) {
  const auto skip_spaces = [&] {
    while (at < text.size() && text[at] == ' ') ++at;
  };
  const auto word = [&] {
    const size_t begin = at;
    while (at < text.size() && std::string(" ,():").find(text[at]) == std::string::npos) ++at;
    return text.substr(begin, at - begin);
  };
  skip_spaces();
  Term term{Kind::value, word(), {}};
  if (term.name[0] == '#') {
    term.kind = Kind::number;
    term.number = std::stod(term.name.substr(1));
  } else if (term.name[0] == '%') {
    term.kind = Kind::constant;
    term.name.erase(0, 1);
  } else {
    if (at < text.size() && text[at] == ':') {
      ++at;
      term.op = word();
    } else if (at < text.size() && text[at] == '(') {
      term.op = std::move(term.name);
      term.name.clear();
    }
    if (!term.op.empty()) {
      term.kind = Kind::node;
      assert(text[at] == '(');
      do {
        ++at;
        term.inputs.push_back(parse(text, at));
      } while (text[at] == ',');
      assert(text[at] == ')');
      ++at;
    }
  }
  skip_spaces();
  return term;
}

struct Pattern::Matcher {
  const Model& model;
  const std::map<std::string, const Node*>& producers;

  bool is_number(const std::string& value, double number) const {
    const Constant* constant = model.constant(value);
    if (!constant || !constant->is_fixed() || constant->elements() == 0 || constant->elements() > 1 << 16) return false;
    for (int64_t i = 0; i < constant->elements(); ++i)
      if (!(std::abs(constant->at(i) - number) <= 1e-4 * std::abs(number))) return false;
    return true;
  }

  bool bind(Match& match, const std::string& name, const std::string& value) const {
    return match.values.emplace(name, value).first->second == value;
  }

  bool value(const Term& term, const std::string& name, Match& match) const {
    if (name.empty()) return false;
    if (term.kind == Kind::number) return is_number(name, term.number);
    if (term.kind == Kind::constant) return model.constant(name) && bind(match, term.name, name);
    if (term.kind == Kind::value) return bind(match, term.name, name);
    const auto producer = producers.find(name);
    return producer != producers.end() && producer->second->outputs[0] == name && node(term, *producer->second, match);
  }

  bool node(const Term& term, const Node& found, Match& match) const {
    if (found.op != term.op || found.inputs.size() < term.inputs.size()) return false;
    const Match before = match;
    const auto inputs = [&](bool swapped) {
      match = before;
      for (const int i : term.inputs.indices())
        if (!value(term.inputs[i], found.inputs[swapped ? 1 - i : i], match)) return false;
      return true;
    };
    const bool commutes = (found.op == "Add" || found.op == "Mul") && term.inputs.size() == 2;
    if (!inputs(false) && !(commutes && inputs(true))) return false;
    if (!term.name.empty()) match.nodes[term.name] = &found;
    return true;
  }
};

std::optional<Match> Pattern::match(const Model& model, const std::map<std::string, const Node*>& producers,
                                    const Node& root) const {
  Match match;
  if (!Matcher{model, producers}.node(root_, root, match)) return std::nullopt;
  match.root = &root;
  return match;
}

}  // namespace ff::importing
