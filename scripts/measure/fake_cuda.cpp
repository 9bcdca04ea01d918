// Makes the device "cuda" usable under FakeTensorMode on a CPU-only PyTorch.
//
// A fake tensor has a shape, a dtype and a device, and no data, so no kernel ever runs. What is
// missing on a CPU-only build is what PyTorch asks of the device before any kernel:
#include <ATen/ATen.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/transformers/attention.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <tuple>

// 1. A device guard: autograd asks for the current device and its stream at every node.
struct FakeGuard final : public c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::CUDA; }
  c10::Device exchangeDevice(c10::Device) const override { return device(); }
  c10::Device getDevice() const override { return device(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const noexcept override { return stream(); }
  c10::Stream getNewStream(c10::Device, int) const override { return stream(); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return stream(); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex,
              const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}

 private:
  static c10::Device device() { return {c10::DeviceType::CUDA, 0}; }
  static c10::Stream stream() { return c10::Stream(c10::Stream::DEFAULT, device()); }
};
static c10::impl::DeviceGuardImplRegistrar guard(c10::DeviceType::CUDA, new FakeGuard());

// 2. Hooks that say there is one CUDA device: the autograd engine asks which accelerator exists.
struct CUDAHooks final : public at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool hasCUDART() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex current_device() const override { return 0; }
  bool isAvailable() const override { return true; }
  bool isBuilt() const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
};
namespace at {
using ::CUDAHooks;
REGISTER_CUDA_HOOKS(CUDAHooks)
}  // namespace at

// 3. Which kernel scaled_dot_product_attention takes. The conditions are those of
//    aten/src/ATen/native/transformers/cuda/sdp_utils.cpp that a training step can meet:
//    flash without a mask in 16 bits and heads up to 256 wide; else the memory-efficient kernel,
//    which does not take fewer key heads than query heads; else plain operations.
constexpr int64_t kMath = 0, kFlash = 1, kEfficient = 2;

static int64_t choose(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                      const std::optional<at::Tensor>& mask, double, bool, std::optional<double>,
                      bool) {
  const bool half = query.scalar_type() == at::kHalf || query.scalar_type() == at::kBFloat16;
  const bool masked = mask && mask->defined();
  const bool same_width = query.size(-1) == value.size(-1);
  if (half && !masked && same_width && query.size(-1) <= 256) return kFlash;
  return query.size(1) == key.size(1) ? kEfficient : kMath;
}
static const bool chooser = [] {
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&choose);
  return true;
}();

// 4. Every operation that has a kernel of its own on CUDA and a decomposition for devices without
//    one. With no kernel registered, the dispatcher would decompose it, and temporaries would show
//    that a GPU never makes. The list is checked against PyTorch's native_functions.yaml by a
//    test. Fake tensors answer before these are called.
static at::Tensor two(const at::Tensor&, const at::Tensor&) {
  TORCH_CHECK(false, "a fake CUDA device runs no kernel");
}
static std::tuple<at::Tensor, at::Tensor> rms_norm(const at::Tensor&, c10::IntArrayRef,
                                                   const std::optional<at::Tensor>&,
                                                   std::optional<double>) {
  TORCH_CHECK(false, "a fake CUDA device runs no kernel");
}
TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("silu_backward", &two);
  library.impl("mish_backward", &two);
  library.impl("_fused_rms_norm", &rms_norm);
}
