#include "common/operators/einsum.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "common/operators/operator_list.h"

namespace ff {
namespace {

using Sizes = std::map<char, int64_t>;

bool is_in(const std::string& letters, char letter) { return letters.find(letter) != std::string::npos; }

std::string quoted(char letter) { return std::string("\"") + letter + "\""; }

// The letters of the two operands and of the output.
using Equation = Array<std::string, 3>;

Equation parse_equation(const JsonPlace& place, const std::string& text) {
  Equation equation;
  size_t at = 0;
  for (size_t tensor = 0; tensor < 3; ++tensor) {
    const std::string behind = tensor == 0 ? "," : tensor == 1 ? "->" : "";
    while (at < text.size() && ((text[at] >= 'a' && text[at] <= 'z') || (text[at] >= 'A' && text[at] <= 'Z'))) {
      if (is_in(equation[tensor], text[at]))
        place.fail("has the letter " + quoted(text[at]) + " twice in \"" + equation[tensor] + text[at] +
                   "\": diagonals are not supported");
      equation[tensor] += text[at++];
    }
    if (equation[tensor].empty() || text.compare(at, std::max<size_t>(behind.size(), 1), behind) != 0)
      place.fail("found \"" + text +
                 "\", expected the letters of two operands and of the output, as in \"GSEC,GSM->EGCM\"");
    at += behind.size();
  }
  const std::string &first = equation[0], &second = equation[1], &output = equation[2];
  for (char letter : output)
    if (!is_in(first + second, letter)) place.fail("neither operand has the output's letter " + quoted(letter));
  for (char letter : first + second)
    if (!is_in(output, letter) && (!is_in(first, letter) || !is_in(second, letter)))
      place.fail("has the letter " + quoted(letter) +
                 " in one operand alone: einsum sums over letters that both operands have");
  return equation;
}

void add_input_sizes(const OperatorRequest& request, const std::string& text, const std::string& letters, size_t input,
                     Sizes& sizes) {
  const Shape& shape = request.inputs[input].shape;
  const JsonPlace place = request.place.at("inputs").items()[input];
  if (shape.size() != letters.size())
    place.fail("has shape " + to_string(shape) + ", \"" + letters + "\" of \"" + text + "\" expects " +
               std::to_string(letters.size()) + (letters.size() == 1 ? " axis" : " axes"));
  for (size_t axis = 0; axis < letters.size(); ++axis) {
    const int64_t size = sizes.emplace(letters[axis], shape[axis]).first->second;
    if (size != shape[axis])
      place.fail("has shape " + to_string(shape) + ", in which " + quoted(letters[axis]) + " is " +
                 std::to_string(shape[axis]) + "; in the first operand it is " + std::to_string(size));
  }
}

// Of the letters that only the parameter has.
void add_parameter_sizes(const OperatorRequest& request, const Equation& equation, Sizes& sizes) {
  const auto given = request.attribute("sizes");
  if (given) {
    given->expect_object();
    for (const auto& [letter, place] : given->members()) {
      if (letter.size() != 1 || !is_in(equation[1], letter[0]) || is_in(equation[0], letter[0]))
        place.fail("\"" + letter + "\" is no letter that the parameter has and the input has not");
      sizes[letter[0]] = place.as_integer(1, int64_t{1} << 32);
    }
  }
  for (char letter : equation[1])
    if (sizes.count(letter) == 0)
      (given ? *given : request.place)
          .fail("einsum needs the size of its parameter's letter " + quoted(letter) + ", as in \"sizes\": {" +
                quoted(letter) + ": 8}");
}

}  // namespace

Einsum::Einsum(const OperatorRequest& request) : OperatorDefinition(request.type, request.inputs) {
  request.expect_inputs_between(1, 2);
  request.allow_attributes({"equation", "sizes", "trained"});
  const JsonPlace place = request.required_attribute("equation");
  for (char character : place.as_string())
    if (character != ' ') equation += character;
  const Equation letters = parse_equation(place, equation);
  const bool parameter = inputs_.size() == 1;
  Sizes sizes;
  for (size_t input = 0; input < inputs_.size(); ++input) {
    request.expect_type(input, DataType::f32);
    add_input_sizes(request, equation, letters[input], input, sizes);
  }
  if (parameter) add_parameter_sizes(request, letters, sizes);
  else if (const auto given = request.attribute("sizes"))
    given->fail("is for the letters of a parameter, and with two inputs there is none");
  if (const auto trained = request.attribute("trained"); trained && !parameter)
    trained->fail("goes with one input, where the second operand is a parameter");
  if (sizes.size() > static_cast<size_t>(Block::max_rank))
    place.fail("has " + std::to_string(sizes.size()) + " letters, expected at most " + std::to_string(Block::max_rank));

  const auto shape_of = [&](const std::string& tensor) {
    Shape shape;
    for (char letter : tensor) shape.push_back(sizes.at(letter));
    return shape;
  };
  outputs_ = {{"", shape_of(letters[output])}};
  std::string order;  // of the dimensions
  const auto sample = std::find_if(letters[0].begin(), letters[0].end(), [&](char letter) {
    return is_in(letters[output], letter) && !(parameter && is_in(letters[1], letter));
  });
  if (sample != letters[0].end()) order += *sample;
  for (char letter : letters[output])
    if (!is_in(order, letter)) order += letter;
  double fan_in = 1;
  for (char letter : letters[0])
    if (!is_in(order, letter)) {
      order += letter;
      fan_in *= static_cast<double>(sizes.at(letter));
    }
  for (char letter : order) {
    const DimensionKind kind = !is_in(letters[output], letter)                   ? DimensionKind::reduction
                               : parameter && is_in(letters[1], letter)          ? DimensionKind::parameter
                               : sample != letters[0].end() && *sample == letter ? DimensionKind::sample
                                                                                 : DimensionKind::attribute;
    dimensions_.push_back({std::string(1, letter), kind, sizes.at(letter)});
  }
  for (size_t tensor = 0; tensor < 3; ++tensor)
    for (char letter : letters[tensor]) axis_dimension[tensor].push_back(static_cast<int>(order.find(letter)));
  // Uniform with variance 1 / fan_in (LeCun et al. 1998), as linear's without activation.
  const bool trained = request.flag("trained", true);
  if (parameter) parameters_ = {{"weight", shape_of(letters[1]), std::sqrt(3.0 / fan_in), 0, trained, !trained}};
}

Block Einsum::block(int tensor, const Block& part) const {
  Block block;
  for (int dimension : axis_dimension[tensor]) block.append(part[dimension]);
  return block;
}

StoredLetters Einsum::stored(int tensor) const {
  const Vector<int>& axes = axis_dimension[tensor];
  if (tensor == 1 && has_parameter()) return axes;  // parameters are row-major
  StoredLetters letters;
  for (int position = 0; position < axes.count(); ++position)
    letters.push_back(axes[stored_axis(axes.count(), position)]);
  return letters;
}

MatrixProducts Einsum::products(int tensor, const Block& part) const {
  return plan_products(part.shape(), stored(first_factor(tensor)), stored(second_factor(tensor)), stored(tensor));
}

int64_t Einsum::workspace_bytes(const Block& part) const {
  int64_t most = 0;
  for (int tensor = 0; tensor < 3; ++tensor) most = std::max(most, products(tensor, part).permuted_elements());
  return most * element_bytes;
}

double Einsum::product_flops(const Block& part) const {
  double flops = 2;
  for (int d = 0; d < part.rank(); ++d) flops *= static_cast<double>(part[d].size());
  return flops;
}

double Einsum::product_bytes(int tensor, const Block& part) const {
  return touched_bytes(part) +
         2.0 * static_cast<double>(products(tensor, part).permuted_elements() * activation_bytes());
}

Work Einsum::forward_work(const Block& part) const { return {product_flops(part), product_bytes(output, part)}; }

Work Einsum::backward_work(const Block& part, bool input_gradients) const {
  Work work;
  const bool second = !has_parameter() || parameters_[0].trained;
  for (const int tensor : {0, 1})
    if (tensor == 0 ? input_gradients : second) {
      work.flops += product_flops(part);
      work.bytes += product_bytes(tensor, part);
    }
  return work;
}

std::unique_ptr<OperatorDefinition> make_einsum(const OperatorRequest& request) {
  return std::make_unique<Einsum>(request);
}

}  // namespace ff
