#include "common/optimizer.h"

#include <catch2/catch.hpp>

#include "common/errors.h"

namespace ff {
namespace {

OptimizerSettings parsed(const std::string& text) { return parse_optimizer(parse_json(text, "o")); }

}  // namespace

TEST_CASE("an optimizer of a graph file, with PyTorch's defaults") {
  CHECK(parsed(R"({"type":"sgd"})") == OptimizerSettings());
  const OptimizerSettings adam = parsed(R"({"type":"adam"})"), adamw = parsed(R"({"type":"adamw"})");
  CHECK(adam.learning_rate == 0.001);
  CHECK(adam.weight_decay == 0);
  CHECK(adamw.weight_decay == 0.01);
  CHECK(adamw.beta2 == 0.999);
  const OptimizerSettings all =
      parsed(R"({"type":"adamw","learning_rate":0.1,"weight_decay":0.2,"betas":[0.5,0.6],"epsilon":0.01,"clip_norm":3,)"
             R"("schedule":{"warmup_iterations":5,"iterations":20,"minimum":0.05}})");
  CHECK(parse_optimizer(parse_json(optimizer_to_json(all).dump(), "again")) == all);
  const OptimizerSettings sgd = parsed(R"({"type":"sgd","momentum":0.9,"schedule":{"warmup_iterations":2}})");
  CHECK(parse_optimizer(parse_json(optimizer_to_json(sgd).dump(), "again")) == sgd);
}

TEST_CASE("the state that an optimizer keeps") {
  CHECK(state_buffers(OptimizerSettings{}) == 0);
  CHECK(state_buffers(OptimizerSettings{0.1, 0.9}) == 1);
  for (const OptimizerKind kind : {OptimizerKind::adam, OptimizerKind::adamw}) {
    CHECK(state_buffers(default_optimizer(kind)) == 2);
    CHECK(state_names(default_optimizer(kind)) == Vector<std::string>{"exp_avg", "exp_avg_sq"});
  }
}

TEST_CASE("learning rates: linear warm-up, then half a cosine, then the minimum") {
  OptimizerSettings optimizer{0.8};
  CHECK(learning_rate_at(optimizer, 0) == 0.8);
  CHECK(learning_rate_at(optimizer, 1 << 20) == 0.8);
  optimizer.schedule = {.warmup_iterations = 4, .iterations = 12, .minimum = 0.2};
  CHECK(learning_rate_at(optimizer, 0) == Approx(0.2));
  CHECK(learning_rate_at(optimizer, 3) == Approx(0.8));
  CHECK(learning_rate_at(optimizer, 4) == Approx(0.8));
  CHECK(learning_rate_at(optimizer, 8) == Approx(0.5));
  CHECK(learning_rate_at(optimizer, 12) == Approx(0.2));
  CHECK(learning_rate_at(optimizer, 1000) == Approx(0.2));
  CHECK(!optimizer.constant());
}

TEST_CASE("steps: Adam corrects its bias by the number of updates, not of iterations") {
  const OptimizerSettings adam = default_optimizer(OptimizerKind::adam);
  const OptimizerStep first = optimizer_step(adam, 100, 0);
  CHECK(first.step_size == Approx(0.001 / (1 - 0.9)));
  CHECK(first.second_moment_root == Approx(std::sqrt(1 - 0.999)));
  CHECK(clipping_scale(2, 1) == 1);
  CHECK(clipping_scale(2, 8) == Approx(0.25));
}

TEST_CASE("flags in place of the file's optimizer") {
  CHECK(with_flags(std::nullopt, {}) == OptimizerSettings());
  OptimizerSettings of_file = default_optimizer(OptimizerKind::adamw);
  of_file.clip_norm = 2;
  of_file.beta1 = 0.7;
  CHECK(with_flags(of_file, {.kind = "adamw", .learning_rate = 0.5}).beta1 == 0.7);
  CHECK(with_flags(of_file, {.kind = "adamw", .learning_rate = 0.5}).learning_rate == 0.5);
  const OptimizerSettings sgd = with_flags(of_file, {.kind = "sgd", .momentum = 0.9});
  CHECK(sgd.learning_rate == 0.01);
  CHECK(sgd.weight_decay == 0);
  CHECK(sgd.clip_norm == 2);
  CHECK(state_buffers(sgd) == 1);
  CHECK_THROWS_AS(with_flags(of_file, {.momentum = 0.9}), InputError);
}

}  // namespace ff
