// own_model.cc -- your model and your data, trained with everything tandem has: any number of workers with the same
// bits, checkpoints, exact resume, progress, TensorBoard, report.
//
//   own_model train --steps 500 --json        own_model resume last --steps 1000        own_model eval last
#include <tandem/program.h>
#include <tandem/tandem.h>
#include <torch/torch.h>

// Your settings: each key is a flag (--set width=64), a line of a TOML file and a line of the run's record.
struct SpiralSettings : tandem::RecipeSettings {
  int64_t width = 48;
  double drop = 0.05;
  SpiralSettings() {
    shards = 8;
    batch_size = 128;
    steps = 1500;
    optimizer.learning_rate = 3e-3;
  }
  void describe(tandem::Describer& d) override {
    RecipeSettings::describe(d);
    d.key("width", width, tandem::Range::between(1, 4096), "width of the hidden layers");
    d.key("drop", drop, tandem::Range::from_up_to_below(0, 1), "dropout probability");
  }
};

// Your data: samples by number. Called from several loader threads at once; use `random` for augmentation.
// Each arm is half a turn. Sine and cosine are written by + - * / (t is the tangent of half the angle): std::sin and
// std::cos may differ in their last bit between versions of libm, and then so would the weights.
struct Spirals : tandem::Dataset {
  Spirals(int64_t points, double shift) : points(points), shift(shift) {}
  int64_t points;
  double shift;  // along the arm
  int64_t size() const override { return points; }
  std::vector<at::Tensor> load(std::span<const int64_t> samples, const tandem::RandomKey& random) const override {
    constexpr double kArm[3][2] = {
        {1, 0}, {-0.5, 0.8660254037844386}, {-0.5, -0.8660254037844386}};  // 0, 120, 240 degrees
    at::Tensor x = at::empty({int64_t(samples.size()), 2}), y = at::empty({int64_t(samples.size())}, at::kLong);
    for (size_t i = 0; i < samples.size(); ++i) {
      const int64_t arm = samples[i] % 3;
      const double r = (double(samples[i]) + shift) / double(points), t = 2 * r - 1;
      const double c = r * (1 - t * t) / (1 + t * t), s = r * 2 * t / (1 + t * t);
      x[i][0] = c * kArm[arm][0] - s * kArm[arm][1] + 0.02 * tandem::random_normal(random, 2 * i);
      x[i][1] = c * kArm[arm][1] + s * kArm[arm][0] + 0.02 * tandem::random_normal(random, 2 * i + 1);
      y[i] = arm;
    }
    return {x, y};
  }
};

// Your model. With tandem's layers several shards run in one pass; any torch::nn modules do, too, with tandem's batch
// norm and dropout: then shards run one after the other.
struct Net : torch::nn::Module {
  explicit Net(int64_t width)
      : in(register_module("in", tandem::Linear(2, width))),
        norm(register_module("norm", tandem::BatchNorm(width))),
        mid(register_module("mid", tandem::Linear(width, width))),
        out(register_module("out", tandem::Linear(width, 3))) {}
  tandem::Linear in;
  tandem::BatchNorm norm;
  tandem::Linear mid, out;
};

// The loss is SupervisedRecipe's: cross-entropy of what forward() returns with the last tensor of the batch.
struct Spiral : tandem::SupervisedRecipe {
  explicit Spiral(const SpiralSettings& s) : SupervisedRecipe(s), settings(s) {}
  std::shared_ptr<torch::nn::Module> make_model() override { return net = std::make_shared<Net>(settings.width); }
  std::unique_ptr<tandem::Dataset> make_data() override { return std::make_unique<Spirals>(3000, 0); }
  // Samples that training never sees: `own_model eval last`, and checkpoints/best.
  std::unique_ptr<tandem::Dataset> make_validation_data() override { return std::make_unique<Spirals>(600, 0.5); }
  at::Tensor forward(const tandem::Batch& batch, tandem::ShardContext& context) override {
    at::Tensor x = at::relu(net->norm(net->in(batch.tensors[0])));
    // 0: this place among those of the model that draw random numbers; the next would be 1.
    x = tandem::dropout(at::relu(net->mid(x)), settings.drop, context.random(0));
    return net->out(x);
  }
  const SpiralSettings& settings;
  std::shared_ptr<Net> net;
};

int main(int argc, char** argv) {
  return tandem::program_main(argc, argv, "own_model",
                              {tandem::recipe_entry<Spiral, SpiralSettings>("spiral", "three arms of a spiral")});
}
