#include "kernels/gpu/linear_cublaslt.h"

#include <cuda_runtime.h>
#include <dlfcn.h>
#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#endif

#include <memory>
#include <optional>
#include <stdexcept>

#include "base/errors.h"
#include "kernels/gpu/cublaslt_api.h"
#include "kernels/gpu/kernels.h"

namespace tandem::cuda {
namespace {

using namespace tandem::cublaslt;

#ifdef CUBLAS_VERSION  // its own header is there
static_assert(kOpN == static_cast<int>(CUBLAS_OP_N) && kOpT == static_cast<int>(CUBLAS_OP_T));
static_assert(kCompute32F == static_cast<int>(CUBLAS_COMPUTE_32F) &&
              kCompute32FFastTf32 == static_cast<int>(CUBLAS_COMPUTE_32F_FAST_TF32));
static_assert(kDescTransA == static_cast<int>(CUBLASLT_MATMUL_DESC_TRANSA) &&
              kDescTransB == static_cast<int>(CUBLASLT_MATMUL_DESC_TRANSB) &&
              kDescEpilogue == static_cast<int>(CUBLASLT_MATMUL_DESC_EPILOGUE) &&
              kDescBiasPointer == static_cast<int>(CUBLASLT_MATMUL_DESC_BIAS_POINTER) &&
              kDescSmCountTarget == static_cast<int>(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET) &&
              kDescBiasDataType == static_cast<int>(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE) &&
              kEpilogueBias == static_cast<int>(CUBLASLT_EPILOGUE_BIAS));
static_assert(kLayoutBatchCount == static_cast<int>(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) &&
              kLayoutStridedBatchOffset == static_cast<int>(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET));
static_assert(kPrefMaxWorkspaceBytes == static_cast<int>(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) &&
              kPrefReductionSchemeMask == static_cast<int>(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) &&
              kPrefMinAlignmentA == static_cast<int>(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES) &&
              kPrefMinAlignmentD == static_cast<int>(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES));
static_assert(kConfigId == static_cast<int>(CUBLASLT_ALGO_CONFIG_ID) &&
              kConfigSplitKNum == static_cast<int>(CUBLASLT_ALGO_CONFIG_SPLITK_NUM) &&
              kConfigReductionScheme == static_cast<int>(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME) &&
              kConfigClusterShapeId == static_cast<int>(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID));
static_assert(sizeof(Algo) == sizeof(cublasLtMatmulAlgo_t) &&
              sizeof(HeuristicResult) == sizeof(cublasLtMatmulHeuristicResult_t));
#endif

// Found by its soname: the copy that libtorch has loaded. A second one would cost 500 MB.
struct CublasLt : LtFunctions {
  Handle handle;
};

[[noreturn]] void refuse_library(const std::string& why) {
  throw Error(ExitCode::kFailed, "linear layers can't run on this GPU", why,
              "install libtorch with its CUDA libraries (make setup), or use torch::nn::Linear in their place");
}

CublasLt open_library() {
  constexpr const char* kName = "libcublasLt.so.13";
  void* library = dlopen(kName, RTLD_NOW | RTLD_NOLOAD);
  if (!library) library = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (!library) refuse_library(std::string("there is no cuBLASLt: ") + dlerror());
  CublasLt lt{};
  const auto find = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, symbol));
    if (!function) refuse_library(std::string(kName) + " has no " + symbol);
  };
  find(lt.get_version, "cublasLtGetVersion");
  find(lt.status_string, "cublasLtGetStatusString");
  find(lt.create, "cublasLtCreate");
  find(lt.desc_create, "cublasLtMatmulDescCreate");
  find(lt.desc_destroy, "cublasLtMatmulDescDestroy");
  find(lt.desc_set, "cublasLtMatmulDescSetAttribute");
  find(lt.layout_create, "cublasLtMatrixLayoutCreate");
  find(lt.layout_destroy, "cublasLtMatrixLayoutDestroy");
  find(lt.layout_set, "cublasLtMatrixLayoutSetAttribute");
  find(lt.preference_create, "cublasLtMatmulPreferenceCreate");
  find(lt.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  find(lt.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  find(lt.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  find(lt.check, "cublasLtMatmulAlgoCheck");
  find(lt.config_get, "cublasLtMatmulAlgoConfigGetAttribute");
  find(lt.matmul, "cublasLtMatmul");
  if (const Status status = lt.create(&lt.handle); status != kSuccess)
    refuse_library(std::string("cublasLtCreate: ") + lt.status_string(status));
  return lt;
}

const CublasLt& lt() {
  static const CublasLt library = open_library();  // for the life of the process, which drives one GPU
  return library;
}

void expect(Status status, const char* what) {
  if (status == kSuccess) return;
  const cudaError_t error = cudaGetLastError();
  throw CudaError(static_cast<int>(error == cudaSuccess ? cudaErrorUnknown : error),
                  std::string("cuBLASLt, ") + what + ": " + lt().status_string(status) +
                      (error == cudaSuccess ? "" : std::string(", ") + cudaGetErrorString(error)));
}

cudaDataType_t data_type(FloatType type) {
  return type == FloatType::kFloat ? CUDA_R_32F : type == FloatType::kBFloat16 ? CUDA_R_16BF : CUDA_R_16F;
}

// cuBLASLt's matrices are column-major: ours of [rows, columns] is its [columns, rows].
struct LtMatrix {
  uint64_t rows = 0, columns = 0;  // as cuBLASLt counts
  cudaDataType_t type = CUDA_R_32F;
  int64_t batch_stride = 0;  // elements
  int64_t alignment = 16;    // bytes
};

// A GEMM as cuBLASLt describes it: D [m, n] = op(A) op(B) (+ bias), for `shards` shards of the job.
class Problem {
 public:
  Problem(const LinearGemmShape& shape, int64_t shards) {
    const auto out = static_cast<uint64_t>(shape.out), in = static_cast<uint64_t>(shape.in);
    const auto shard_rows = static_cast<uint64_t>(shape.shard_rows), rows = shard_rows * static_cast<uint64_t>(shards);
    const cudaDataType_t type = data_type(shape.type);
    const int64_t in_alignment = gemm_alignment(shape.in, shape.type),
                  out_alignment = gemm_alignment(shape.out, shape.type);
    const LtMatrix w{in, out, type, 0, 16};
    bool transposed_a = false, transposed_b = false;
    switch (shape.kind) {
      case GemmKind::kForward:
        a_ = w, b_ = {in, rows, type, 0, in_alignment}, d_ = {out, rows, type, 0, out_alignment};
        transposed_a = true;
        break;
      case GemmKind::kInputGradient:
        a_ = w, b_ = {out, rows, type, 0, out_alignment}, d_ = {in, rows, type, 0, in_alignment};
        break;
      case GemmKind::kWeightLeaves:
        batch_ = static_cast<int32_t>(shards);
        a_ = {in, shard_rows, type, shape.shard_rows * shape.in, in_alignment};
        b_ = {out, shard_rows, type, shape.shard_rows * shape.out, out_alignment};
        d_ = {in, out, CUDA_R_32F, shape.in * shape.out, gemm_alignment(shape.in, FloatType::kFloat)};
        transposed_b = true;
        break;
    }
    expect(lt().desc_create(&desc_, shape.tf32 ? kCompute32FFastTf32 : kCompute32F, CUDA_R_32F), "description");
    set(kDescTransA, transposed_a ? kOpT : kOpN);
    set(kDescTransB, transposed_b ? kOpT : kOpN);
    if (shape.bias) {
      set(kDescEpilogue, kEpilogueBias);
      set(kDescBiasDataType, type);
      set_bias(reinterpret_cast<const void*>(uintptr_t{16}));  // its alignment is all that a choice looks at
    }
    a_layout_ = layout(a_), b_layout_ = layout(b_), d_layout_ = layout(d_);
  }
  Problem(const Problem&) = delete;
  ~Problem() {
    for (const Layout layout : {a_layout_, b_layout_, d_layout_})
      if (layout) lt().layout_destroy(layout);
    if (desc_) lt().desc_destroy(desc_);
  }

  void set_bias(const void* bias) { set(kDescBiasPointer, bias); }
  void set_sm_count(int32_t count) { set(kDescSmCountTarget, count); }

  std::vector<HeuristicResult> heuristic(uint64_t workspace) const {
    Preference preference = nullptr;
    expect(lt().preference_create(&preference), "preference");
    const std::unique_ptr<std::remove_pointer_t<Preference>, decltype(lt().preference_destroy)> owner(
        preference, lt().preference_destroy);
    const auto prefer = [&](PreferenceAttribute attribute, auto value) {
      expect(lt().preference_set(preference, attribute, &value, sizeof value), "preference");
    };
    prefer(kPrefMaxWorkspaceBytes, workspace);
    prefer(kPrefReductionSchemeMask, kReductionSchemeNone);
    prefer(kPrefMinAlignmentA, static_cast<uint32_t>(a_.alignment));
    prefer(kPrefMinAlignmentB, static_cast<uint32_t>(b_.alignment));
    prefer(kPrefMinAlignmentC, static_cast<uint32_t>(d_.alignment));
    prefer(kPrefMinAlignmentD, static_cast<uint32_t>(d_.alignment));
    std::vector<HeuristicResult> results(32);
    int found = 0;
    const Status status = lt().heuristic(lt().handle, desc_, a_layout_, b_layout_, d_layout_, d_layout_, preference,
                                         static_cast<int>(results.size()), results.data(), &found);
    results.resize(status == kSuccess ? static_cast<size_t>(found) : 0);
    std::erase_if(results, [](const auto& result) { return result.state != kSuccess; });
    return results;
  }

  Status check(const Algo& algorithm, HeuristicResult& result) const {
    return lt().check(lt().handle, desc_, a_layout_, b_layout_, d_layout_, d_layout_, &algorithm, &result);
  }

  void run(const void* a, const void* b, void* d, const Algo& algorithm, void* workspace, size_t workspace_bytes,
           cudaStream_t stream) const {
    const float one = 1, zero = 0;
    expect(lt().matmul(lt().handle, desc_, &one, a, a_layout_, b, b_layout_, &zero, d, d_layout_, d, d_layout_,
                       &algorithm, workspace, workspace_bytes, stream),
           "a GEMM");
  }

 private:
  template <class T>
  void set(DescAttribute attribute, T value) {
    expect(lt().desc_set(desc_, attribute, &value, sizeof value), "description");
  }
  Layout layout(const LtMatrix& operand) const {
    Layout made = nullptr;
    expect(lt().layout_create(&made, operand.type, operand.rows, operand.columns, static_cast<int64_t>(operand.rows)),
           "layout");
    if (batch_ > 0) {
      expect(lt().layout_set(made, kLayoutBatchCount, &batch_, sizeof batch_), "layout");
      expect(lt().layout_set(made, kLayoutStridedBatchOffset, &operand.batch_stride, sizeof operand.batch_stride),
             "layout");
    }
    return made;
  }

  LtMatrix a_, b_, d_;
  int32_t batch_ = 0;  // 0: no batch
  Desc desc_ = nullptr;
  Layout a_layout_ = nullptr, b_layout_ = nullptr, d_layout_ = nullptr;
};

int compute_capability() {  // 90: Hopper; 0: not known
  int gpu = 0, major = 0, minor = 0;
  if (cudaGetDevice(&gpu) != cudaSuccess ||
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, gpu) != cudaSuccess)
    return 0;
  return 10 * major + minor;
}

// The heuristic follows the SM count. So that unequal GPUs of one compute capability choose alike, it is asked for the
// capability's usual one; 0: as the device has it.
int32_t usual_sm_count() {
  switch (compute_capability()) {
    case 80:
      return 108;
    case 86:
      return 82;
    case 89:
      return 128;
    case 90:
      return 132;
    case 100:
      return 148;
    case 120:
      return 170;
    default:
      return 0;
  }
}

std::optional<uint32_t> config(const Algo& algorithm, ConfigAttribute attribute, size_t bytes = sizeof(uint32_t)) {
  uint32_t value = 0;
  size_t written = 0;
  if (lt().config_get(&algorithm, attribute, &value, bytes, &written) != kSuccess) return std::nullopt;
  return value;
}

bool splits_k(const Algo& algorithm) {
  return config(algorithm, kConfigSplitKNum).value_or(1) > 1 ||
         config(algorithm, kConfigReductionScheme).value_or(0) != kReductionSchemeNone;
}

std::string describe(const Algo& algorithm, size_t workspace) {
  std::string text;
  const auto add = [&](const char* name, std::optional<uint32_t> value) {
    if (value) text += std::string(text.empty() ? "" : " ") + name + " " + std::to_string(*value);
  };
  add("algorithm", config(algorithm, kConfigId));
  add("tile", config(algorithm, kConfigTileId));
  add("stages", config(algorithm, kConfigStagesId));
  add("swizzle", config(algorithm, kConfigCtaSwizzling));
  add("custom", config(algorithm, kConfigCustomOption));
  add("inner", config(algorithm, kConfigInnerShapeId, sizeof(uint16_t)));
  add("cluster", config(algorithm, kConfigClusterShapeId, sizeof(uint16_t)));
  add("workspace", static_cast<uint32_t>(workspace));
  return text;
}

Algo library_form(const GemmAlgorithm& algorithm) {
  Algo form;
  static_assert(sizeof form == sizeof algorithm.bytes);
  __builtin_memcpy(&form, algorithm.bytes.data(), sizeof form);
  return form;
}

class LibrarySource : public AlgorithmSource {
 public:
  std::string version() const override {
    return "cublasLt-" + std::to_string(lt().get_version()) + "-sm" + std::to_string(compute_capability());
  }

  // Algorithms without workspace first: split-K and stream-K keep their partial sums there.
  std::vector<GemmAlgorithm> candidates(const LinearGemmShape& shape) override {
    std::vector<GemmAlgorithm> found;
    for (const int64_t workspace : {int64_t{0}, kGemmWorkspaceBytes})
      for (const int32_t sm_count : {usual_sm_count(), int32_t{0}}) {
        if (!found.empty()) return found;
        Problem problem(shape, shape.job_shards);
        if (sm_count > 0) problem.set_sm_count(sm_count);
        for (const auto& result : problem.heuristic(static_cast<uint64_t>(workspace))) {
          if (splits_k(result.algo)) continue;
          GemmAlgorithm algorithm;
          __builtin_memcpy(algorithm.bytes.data(), &result.algo, sizeof algorithm.bytes);
          found.push_back(algorithm);
        }
      }
    return found;
  }

  std::string refusal(const LinearGemmShape& shape, int64_t shards, GemmAlgorithm& algorithm) override {
    const Algo form = library_form(algorithm);
    HeuristicResult result{};
    const Status status = Problem(shape, shards).check(form, result);
    if (status != kSuccess) return std::string("cuBLASLt refuses it, ") + lt().status_string(status);
    if (splits_k(form)) return "it splits the sum over rows or inputs (split-K)";
    if (result.workspaceSize > static_cast<size_t>(kGemmWorkspaceBytes))
      return "it needs " + std::to_string(result.workspaceSize) + " bytes of workspace";
    algorithm.workspace_bytes = static_cast<int64_t>(result.workspaceSize);
    algorithm.details = describe(form, result.workspaceSize);
    return "";
  }
};

GemmChoices& gemm_choices() {
  static LibrarySource source;
  static GemmChoices choices(source);
  return choices;
}

void run_gemm(const GemmCall& call, void* stream) {
  const LinearGemmShape& shape = call.shape;
  if (call.shards < 1 || call.shards > shape.job_shards)
    throw std::logic_error("a GEMM of " + std::to_string(call.shards) + " shards, of a job of " +
                           std::to_string(shape.job_shards));
  const GemmAlgorithm& algorithm = gemm_choices().of(shape);
  Problem problem(shape, call.shards);
  if (shape.bias) problem.set_bias(call.bias);
  const void* const a = shape.kind == GemmKind::kWeightLeaves ? call.x : call.w;
  const void* const b = shape.kind == GemmKind::kForward ? call.x : call.dy;
  problem.run(a, b, call.out, library_form(algorithm), call.workspace, static_cast<size_t>(algorithm.workspace_bytes),
              static_cast<cudaStream_t>(stream));
}

}  // namespace

const GemmKernels& gemm_kernels() {
  static const GemmKernels kernels{
      run_gemm, [](const LinearGemmShape& shape) { return gemm_choices().of(shape).workspace_bytes; },
      [] { return gemm_choices().lines(); },
      [](const std::vector<std::string>& choices) { gemm_choices().force(choices); }};
  return kernels;
}

}  // namespace tandem::cuda
