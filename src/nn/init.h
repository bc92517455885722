// nn/init.h -- initial weights, drawn from the run's own random stream.
//
// Without rules: torch's usual distributions, keyed by (seed, number of the parameter). With rules, a line or two:
//     InitRules()
//         .kind("Linear", "weight", init::normal(0.02))
//         .kind("Embedding", "weight", init::normal(0.02))
//         .name("*.bias", init::zeros())
//         .name("*.c_proj.weight", init::normal(0.02 / std::sqrt(2.0 * layers)))
// each parameter is keyed by (seed, its name), so its first bits depend on nothing else that the model has, nor on the
// order in which it was built.
#pragma once

#include <cstdint>
#include <numbers>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace tandem {

// Overwrites the weights of Linear, Conv, Embedding, LSTM and GRU layers, torch's or ours, by torch's default rules
// (uniform within 1/sqrt(fan_in), or normal for embeddings) with numbers keyed by (seed, number of the parameter).
// Parameters of other modules keep the values that their constructor gave them. Returns the first free number, for a
// second module.
uint64_t init_weights(torch::nn::Module& module, uint64_t seed, uint64_t first_number = 0);

// "Linear" of torch::nn::Linear and of tandem::Linear: a layer of this folder begins as torch's of the same name.
std::string module_kind(const torch::nn::Module& module);

enum class Fan { kIn, kOut };

// Inputs and outputs of one unit, by PyTorch's formula for [out, in, kernel...]: fan in is size(1) times the kernel,
// fan out size(0) times the kernel. Of a grouped convolution size(1) is in / groups; of a transposed one the first
// dimension is the input, so the two are exchanged, as in PyTorch. Throws std::invalid_argument below two dimensions.
struct Fans {
  int64_t in = 0, out = 0;
};
Fans fans_of(const std::vector<int64_t>& sizes);

// How a parameter begins.
struct InitialValues {
  enum class Kind {
    kDefault,
    kConstant,
    kNormal,
    kUniform,
    kKaimingNormal,
    kKaimingUniform,
    kXavierNormal,
    kXavierUniform
  };
  Kind kind = Kind::kDefault;
  double first = 0, second = 0;  // value; mean, deviation; low, high; gain
  Fan fan = Fan::kIn;
};

namespace init {

inline constexpr double kReluGain = std::numbers::sqrt2;
double leaky_relu_gain(double slope);  // sqrt(2 / (1 + slope^2))

InitialValues torch_default();  // what torch's own layer draws
InitialValues zeros();
InitialValues ones();
InitialValues constant(double value);
InitialValues normal(double deviation, double mean = 0);
InitialValues uniform(double low, double high);
// Deviation gain / sqrt(fan); uniform: the same deviation, within sqrt(3) times it.
InitialValues kaiming_normal(Fan fan = Fan::kIn, double gain = kReluGain);
InitialValues kaiming_uniform(Fan fan = Fan::kIn, double gain = kReluGain);
// Deviation gain * sqrt(2 / (fan in + fan out)).
InitialValues xavier_normal(double gain = 1);
InitialValues xavier_uniform(double gain = 1);

}  // namespace init

// Where several rules match a parameter, the last one holds; where none does, torch's default. Patterns are as file
// names in a shell: * for any text, ? for one character.
class InitRules {
 public:
  // By the parameter's name as in the checkpoint: "h.*.mlp.c_proj.weight".
  InitRules& name(std::string pattern, InitialValues values);
  // By the module's kind ("Linear", "Conv*") and the parameter's name in it ("weight", "*").
  InitRules& kind(std::string module, std::string parameter, InitialValues values);
  bool empty() const { return rules_.empty(); }

 private:
  friend void init_weights(torch::nn::Module&, const InitRules&, uint64_t, const std::string&);
  struct Rule {
    std::string name, module, parameter;  // `name`, or the other two
    InitialValues values;
    bool matches(const std::string& full_name, const std::string& module_kind, const std::string& own_name) const;
    std::string text() const;
  };
  std::vector<Rule> rules_;
};

// Every parameter of the module by these rules. Layers whose defaults are known here: Linear, Bilinear, convolutions
// (transposed ones too), RNN, LSTM, GRU and their cells, embeddings, norms, MultiheadAttention; parameters of other
// modules that no rule matches keep the values of their constructor. An embedding's padding row is 0. A tied parameter
// goes by its first name. Throws ConfigError for a rule that matches nothing, and for a fan of a vector.
void init_weights(torch::nn::Module& module, const InitRules& rules, uint64_t seed, const std::string& prefix = "");

}  // namespace tandem
