// own_verb.cc -- a recipe that brings a command of its own: `own_verb predict RUN --x 2` answers from the weights of a
// run. Its entry also names a flag, a quick training, a line for the help and what it needs of a machine.
//
//   own_verb train --noise 0.2        own_verb predict last --x 2 --json        own_verb predict --help
#include <fmt/format.h>
#include <tandem/checkpoint/store.h>
#include <tandem/program.h>
#include <tandem/runs/run_folder.h>
#include <tandem/tandem.h>
#include <torch/torch.h>

#include <cstring>
#include <nlohmann/json.hpp>

namespace {

struct LineSettings : tandem::RecipeSettings {
  double slope = 3, noise = 0.1;
  LineSettings() {
    shards = 4;
    batch_size = 32;
    steps = 400;
    optimizer.learning_rate = 0.05;
  }
  void describe(tandem::Describer& d) override {
    RecipeSettings::describe(d);
    d.key("slope", slope, tandem::Range::between(-100, 100), "of the line that is to be found");
    d.key("noise", noise, tandem::Range::at_least(0), "of its samples");
  }
};

// y = slope x + 1 + noise, for x from -1 to 1.
struct Points : tandem::Dataset {
  explicit Points(const LineSettings& s) : settings(s) {}
  int64_t size() const override { return 512; }
  std::vector<at::Tensor> load(std::span<const int64_t> samples, const tandem::RandomKey& random) const override {
    const auto n = static_cast<int64_t>(samples.size());
    at::Tensor x = at::empty({n, 1}), y = at::empty({n});
    for (int64_t i = 0; i < n; ++i) {
      const double at = double(samples[static_cast<size_t>(i)]) / 256 - 1;
      x[i][0] = at;
      y[i] = settings.slope * at + 1 + settings.noise * tandem::random_normal(random, static_cast<uint64_t>(i));
    }
    return {x, y};
  }
  const LineSettings& settings;
};

struct Line : tandem::SupervisedRecipe {
  explicit Line(const LineSettings& s) : SupervisedRecipe(s), settings(s) {}
  std::shared_ptr<torch::nn::Module> make_model() override {
    return net = std::make_shared<torch::nn::LinearImpl>(1, 1);
  }
  std::unique_ptr<tandem::Dataset> make_data() override { return std::make_unique<Points>(settings); }
  at::Tensor forward(const tandem::Batch& batch, tandem::ShardContext&) override {
    return net->forward(batch.tensors[0]).squeeze(1);
  }
  at::Tensor row_losses(const at::Tensor& output, const tandem::Batch& batch) override {
    return at::square(output - batch.tensors[1]);
  }
  at::Tensor row_correct(const at::Tensor&, const tandem::Batch&) override { return {}; }  // no accuracy
  const LineSettings& settings;
  std::shared_ptr<torch::nn::LinearImpl> net;
};

float number_in(const tandem::SafetensorsFile& model, const char* name) {
  const tandem::TensorView* const tensor = model.find(name);
  float value = 0;
  if (!tensor || tensor->bytes.size() != sizeof value)
    throw tandem::ConfigError(fmt::format("the run has no {}", name), "it is a run of another recipe", "name another");
  std::memcpy(&value, tensor->bytes.data(), sizeof value);
  return value;
}

// The verb: the parsed line and where words go are in `command`.
int predict(const tandem::Command& command) {
  const auto run = tandem::RunFolder::find(tandem::runs_root(command.arguments), command.subject("last"));
  auto store = tandem::CheckpointStore::reader(tandem::FileSystem::real(), run.checkpoints());
  const auto newest = store.load_newest();
  if (!newest)
    throw tandem::ConfigError(fmt::format("{} has no checkpoint", run.id()), "it ended before its first save",
                              fmt::format("go on with it: `{} resume {}`", command.context.program, run.id()));
  const double x = std::stod(command.arguments.text("x", "0"));
  const double y = number_in(newest->model, "weight") * x + number_in(newest->model, "bias");
  if (command.output.json())
    command.output.object({{"run", run.id()}, {"x", x}, {"y", y}});
  else
    command.output.data(fmt::format("{:.3f}\n", y));
  return 0;
}

// The entry is all that the program knows of the recipe: help, completion and commands are made from it.
tandem::RecipeEntry line() {
  tandem::RecipeEntry entry =
      tandem::recipe_entry<Line, LineSettings>("line", "the slope of a line, from noisy points");
  entry.info.quick = {{"steps", "50"}};
  entry.info.flags = {{"--noise", "noise", "x", "noise of the samples"}};
  entry.info.examples = {{"train line --noise 0.5", "points that are hard to read"}};
  entry.info.need = {.gpu_gib = 0.8, .host_gib = 0.2};
  entry.info.verbs = {{.name = "predict",
                       .summary = "what a trained line says at x",
                       .run = predict,
                       .flags = {{"--x", "number", "where to look [0]"}},
                       .examples = {{"predict last --x 2", "by the newest run"}}}};
  return entry;
}

}  // namespace

int main(int argc, char** argv) { return tandem::program_main(argc, argv, "own_verb", {line()}); }
