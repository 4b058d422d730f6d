// Of framework_arguments.h: the TOML file of torchtitan.
#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "common/errors.h"
#include "search/settings/argument_values.h"
#include "search/settings/framework_arguments.h"
#include "search/settings/torchtitan_stages.h"

namespace ff {
namespace {

[[noreturn]] void fail(const std::string& what) { throw InputError(what); }

// Of torchtitan's file: "section.key" to the value's text, without quotes. Tables of one level; lists may go on in
// further lines.
std::map<std::string, std::string> keys_of_file(const std::string& path) {
  std::ifstream file(path);
  if (!file || std::filesystem::is_directory(path)) fail(path + ": cannot be read");
  const auto is_control = [](unsigned char letter) { return letter < ' ' && letter != '\t' && letter != '\r'; };
  const auto is_of_key = [](unsigned char letter) { return std::isalnum(letter) || std::strchr("_-.\"' ", letter); };
  std::map<std::string, std::string> values;
  const auto trimmed = [](const std::string& text) {
    const size_t begin = text.find_first_not_of(" \t\r"), end = text.find_last_not_of(" \t\r");
    return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
  };
  const auto open_brackets = [](const std::string& value) {
    return value.empty() || value.front() != '['
               ? 0
               : std::count(value.begin(), value.end(), '[') - std::count(value.begin(), value.end(), ']');
  };
  std::string line, section;
  for (int number = 1; std::getline(file, line); ++number) {
    line = trimmed(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const std::string where = path + ": line " + std::to_string(number) + ": ";
    if (std::any_of(line.begin(), line.end(), is_control)) fail(where + "is no text, expected key = value");
    if (line.front() == '[') {
      if (line.back() != ']') fail(where + "found \"" + line + "\", expected [section]");
      section = trimmed(line.substr(1, line.size() - 2));
      continue;
    }
    const size_t sign = line.find('=');
    if (sign == std::string::npos || !std::all_of(line.begin(), line.begin() + static_cast<int64_t>(sign), is_of_key))
      fail(where + "found \"" + line + "\", expected key = value");
    std::string value = trimmed(line.substr(sign + 1));
    for (std::string more; open_brackets(value) > 0 && std::getline(file, more); ++number)
      value += " " + trimmed(more.substr(0, more.find('#')));
    if (open_brackets(value) > 0) fail(where + "\"" + trimmed(line.substr(0, sign)) + "\" is a list without an end");
    if (value.size() > 1 && value.front() == '"' && value.back() == '"') value = value.substr(1, value.size() - 2);
    if (!values.emplace(section + "." + trimmed(line.substr(0, sign)), value).second)
      fail(where + "\"" + trimmed(line.substr(0, sign)) + "\" is given twice in [" + section + "]");
  }
  return values;
}

class Torchtitan {
 public:
  Torchtitan(const std::string& path, const Graph& graph, int devices)
      : path_(path), layers_(transformer_layers(graph).count()), devices_(devices), graph_(graph),
        values_(keys_of_file(path)) {}

  FrameworkArguments parsed() {
    if (layers_ == 0)
      fail("the graph \"" + graph_.name + "\" has no multi_head_attention: the settings are for transformers");
    Parallelism& own = result_.parallelism;
    own.framework = "fsdp";
    own.tensor = static_cast<int>(number("parallelism.tensor_parallel_degree", 1));
    own.pipeline = static_cast<int>(number("parallelism.pipeline_parallel_degree", 1));
    own.context = static_cast<int>(number("parallelism.context_parallel_degree", 1));
    if (devices_ % (own.of_layer() * own.pipeline) != 0)
      refuse("parallelism.tensor_parallel_degree",
             std::string(own.context > 1 ? "tensor, context and pipeline" : "tensor and pipeline") +
                 " degrees do not divide the " + std::to_string(devices_) + " devices");
    own.data = devices_ / own.of_layer() / own.pipeline;
    own.expert = static_cast<int>(number("parallelism.expert_parallel_degree", 1));
    const int of_expert = static_cast<int>(number("parallelism.expert_tensor_parallel_degree", 1));
    if (own.expert > 1) own.expert_tensor = of_expert;
    read_data_parallelism();
    read_batch();
    read_length();
    read_schedule();
    read_recomputation();
    if (text("parallelism.fsdp_reshard_after_forward", "default") == "never" &&
        shards_parameters(own.synchronization) && own.pipeline == 1)
      result_.notes.push_back(
          "parallelism.fsdp_reshard_after_forward = \"never\": predicted with weights that are gathered again for "
          "backward, which needs less memory and exchanges more");
    if (flag("parallelism.enable_async_tensor_parallel", false) && own.tensor > 1)
      result_.notes.push_back(
          "parallelism.enable_async_tensor_parallel: predicted without, exchanges of tensor parallelism do not run "
          "beside products");
    // [training] had it until 2025.
    own.compiled = flag("compile.enable", flag("training.compile", false));
    const std::string optimizer = text("optimizer.name", "AdamW");
    result_.optimizer = optimizer == "AdamW" ? "adamw" : optimizer == "Adam" ? "adam" : "";
    if (result_.optimizer.empty()) refuse("optimizer.name", "found \"" + optimizer + "\", expected Adam, AdamW");
    if (text("training.mixed_precision_param", "bfloat16") == "bfloat16") result_.precision = Precision::bf16;
    for (const auto& [key, value] : values_)
      if (!read_.contains(key)) ignore(key, value);
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse(const std::string& key, const std::string& what) const {
    fail(path_ + ": " + key + ": " + what);
  }
  // What is not read; in [parallelism] only what is known not to matter.
  void ignore(const std::string& key, const std::string& value) {
    static const Vector<std::string> without_a_meaning = {"disable_loss_parallel",
                                                          "enable_compiled_autograd",
                                                          "context_parallel_load_balancer",
                                                          "context_parallel_rotate_method",
                                                          "expert_parallel_comm_backend",
                                                          "expert_parallel_a2a_impl",
                                                          "pipeline_parallel_expert_parallel_overlap"};
    const std::string section = "parallelism.", schedule = "parallelism.pipeline_parallel_schedule_csv";
    const std::string name = key.starts_with(section) ? key.substr(section.size()) : "";
    const bool known = name.empty() || (key == schedule && value.empty()) ||
                       std::find(without_a_meaning.begin(), without_a_meaning.end(), name) != without_a_meaning.end();
    if (!known) {
      Vector<std::string> names = without_a_meaning;
      for (const std::string& one : read_)
        if (one.starts_with(section)) names.push_back(one.substr(section.size()));
      refuse(key, "is not understood" + suggestion(name, names));
    }
    result_.ignored.push_back(key);
  }
  std::string text(const std::string& key, const std::string& otherwise) {
    read_.insert(key);
    const auto found = values_.find(key);
    return found == values_.end() ? otherwise : found->second;
  }
  bool flag(const std::string& key, bool otherwise) {
    const std::string value = text(key, otherwise ? "true" : "false");
    if (value != "true" && value != "false") refuse(key, "found \"" + value + "\", expected true, false");
    return value == "true";
  }
  int64_t number(const std::string& key, int64_t otherwise) {
    const std::string value = text(key, "");
    return value.empty() ? otherwise : number_of(path_ + ": " + key, value);
  }

  void read_data_parallelism() {
    Parallelism& own = result_.parallelism;
    const char* const key = "parallelism.data_parallel_shard_degree";
    const int64_t replicas = number("parallelism.data_parallel_replicate_degree", 1);
    const int64_t shards = text(key, "-1") == "-1" ? own.data / std::max<int64_t>(1, replicas) : number(key, 1);
    if (replicas * shards != own.data)
      refuse(key, "replicas x shards = " + std::to_string(replicas * shards) + ", the devices make " +
                      std::to_string(own.data));
    // FSDP is of the ranks of dp_shard and of context parallelism (parallel_dims.py: fsdp_enabled).
    const int of_state = static_cast<int>(shards) * own.context;
    if (of_state > 1) own.synchronization = Synchronization::sharded_parameters;
    if (of_state > 1 && replicas > 1) own.shard_group = of_state;
  }

  // Gradients accumulate over as many local batches as the global one has.
  void read_batch() {
    Parallelism& own = result_.parallelism;
    const int64_t local = number("training.local_batch_size", 8);
    result_.batch =
        text("training.global_batch_size", "-1") == "-1" ? local * own.data : number("training.global_batch_size", 1);
    own.micro_batch = local;
    if (own.pipeline > 1) own.micro_batch = number("parallelism.pipeline_parallel_microbatch_size", 1);
    if (result_.batch != local * own.data && own.pipeline > 1)
      result_.notes.push_back(
          "gradients that accumulate over several local batches are predicted as one batch: the pipeline is not "
          "emptied between them");
  }

  // 2,048 where it is not said.
  void read_length() {
    const int64_t length = number("training.seq_len", 2048), own = sequence_length(graph_);
    if (own == length) return;
    const std::string has = "the graph \"" + graph_.name + "\" has " + std::to_string(own) + " tokens in a sample";
    if (values_.contains("training.seq_len")) refuse("training.seq_len", std::to_string(length) + ": " + has);
    result_.notes.push_back("training.seq_len is not given, torchtitan takes " + std::to_string(length) + "; " + has +
                            ", and is predicted");
  }

  void read_schedule() {
    Parallelism& own = result_.parallelism;
    if (own.pipeline == 1) return;
    const char* const key = "parallelism.pipeline_parallel_schedule";
    const std::string schedule = text(key, "1F1B");
    if (schedule != "1F1B" && schedule != "Interleaved1F1B")
      refuse(key, "found \"" + schedule + "\", expected 1F1B, Interleaved1F1B");
    const bool interleaved = schedule == "Interleaved1F1B";
    const Vector<int> of_chunks = read_chunks(interleaved);
    if (of_chunks.count() % own.pipeline != 0 || (of_chunks.count() > own.pipeline) != interleaved)
      refuse(key, schedule + " has " + (interleaved ? "at least two chunks" : "one chunk") + " for each of the " +
                      std::to_string(own.pipeline) + " stages, found " + std::to_string(of_chunks.size()) + " chunks");
    own.chunks = of_chunks.count() / own.pipeline;
    if (of_chunks != layers_of_chunks(own, layers_)) own.layers = of_chunks;
  }

  // [chunk]: its layers.
  Vector<int> read_chunks(bool interleaved) {
    const char *const modules = "parallelism.module_fqns_per_model_part",
                      *const of_chunk = "parallelism.pipeline_parallel_layers_per_stage";
    const auto less = [&](const std::string& end) {
      const std::string key = "parallelism.pipeline_parallel_" + end + "_stage_less_layers";
      return text(key, "1") == "0" ? 0 : static_cast<int>(number(key, 1));
    };
    const TorchtitanStages stages{less("first"), less("last"), static_cast<int>(number(of_chunk, 0))};
    const std::string list = text(modules, "");
    const int pipeline = result_.parallelism.pipeline;
    try {
      if (!list.empty()) return layers_of_modules(list, layers_);
      return layers_of(stages, chunks_of(stages, pipeline, interleaved, layers_), layers_);
    } catch (const InputError& error) {
      refuse(list.empty() ? "parallelism.pipeline_parallel_degree" : modules, error.what());
    }
  }

  // By default every second layer is computed again. Behind read_schedule, which knows the stages.
  void read_recomputation() {
    Parallelism& own = result_.parallelism;
    const char* const option = "activation_checkpoint.selective_ac_option";
    const std::string mode = text("activation_checkpoint.mode", "selective"), of = text(option, "2");
    const bool early_stop = flag("activation_checkpoint.early_stop", false);
    if (mode == "none") return;
    if (mode == "selective" && of == "op") {
      own.recompute = Recomputation::selective;
      return;
    }
    if (mode != "full" && mode != "selective")
      refuse("activation_checkpoint.mode", "found \"" + mode + "\", expected none, selective, full");
    const int every =
        mode == "full" ? 1 : static_cast<int>(number_of(path_ + ": " + option + ", if it is not \"op\"", of));
    if (every > 1) own.recompute_layers = recomputed_of_chunk(own, layers_, every);
    if (every > 1 && own.recompute_layers == 0) return;
    own.recompute = Recomputation::full;
    own.early_stop = early_stop;
    if (every > 1)
      result_.notes.push_back("activation_checkpoint: torchtitan computes again layer " + std::to_string(every) +
                              " of every " + std::to_string(every) + "; predicted are the first " +
                              std::to_string(own.recompute_layers) + " of each " +
                              (own.pipeline > 1 ? "chunk of a stage" : "device") + " instead");
  }

  const std::string& path_;
  const int layers_, devices_;
  const Graph& graph_;
  const std::map<std::string, std::string> values_;
  std::set<std::string> read_;
  FrameworkArguments result_;
};

}  // namespace

FrameworkArguments load_torchtitan_file(const std::string& path, const Graph& graph, int devices) {
  return Torchtitan(path, graph, devices).parsed();
}

}  // namespace ff
