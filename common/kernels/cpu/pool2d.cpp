#include "common/operators/pool2d.h"

#include "common/kernels/cpu/kernels.h"

namespace ff::cpu {
namespace {

class Pool2dKernel : public Kernel {
 public:
  Pool2dKernel(const Context& context, const Pool2d& pool, const Block& part) : context_(context) {
    const dnnl::memory::desc input = storage(pool.input_block(0, part).shape()), output = storage(part.shape());
    const dnnl::memory::dims strides{pool.height.stride, pool.width.stride},
        kernel{pool.height.kernel, pool.width.kernel};
    const dnnl::memory::dims before{pool.height.padding_before(part[2]), pool.width.padding_before(part[3])};
    const dnnl::memory::dims behind{pool.height.padding_behind(part[2]), pool.width.padding_behind(part[3])};
    const dnnl::algorithm algorithm = pool.method == Pool2d::Method::max ? dnnl::algorithm::pooling_max
                                      : pool.count_padding               ? dnnl::algorithm::pooling_avg_include_padding
                                                                         : dnnl::algorithm::pooling_avg_exclude_padding;
    const dnnl::pooling_forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, algorithm, input, output, strides, kernel, before, behind},
        user_scratchpad(), context.engine);
    const dnnl::pooling_backward::primitive_desc backward({algorithm, input, output, strides, kernel, before, behind},
                                                          user_scratchpad(), context.engine, forward);
    forward_ = Primitive::make<dnnl::pooling_forward>(context, forward);
    backward_ = Primitive::make<dnnl::pooling_backward>(context, backward);
    forward_.add(context, DNNL_ARG_SRC, input);
    forward_.add(context, DNNL_ARG_DST, output);
    backward_.add(context, DNNL_ARG_DIFF_SRC, input);
    backward_.add(context, DNNL_ARG_DIFF_DST, output);
    if (algorithm == dnnl::algorithm::pooling_max) {  // which position was the maximum
      const dnnl::memory workspace(forward.workspace_desc(), context.engine);
      forward_.add(DNNL_ARG_WORKSPACE, workspace);
      backward_.add(DNNL_ARG_WORKSPACE, workspace);
      workspace_bytes_ = static_cast<int64_t>(forward.workspace_desc().get_size());
    }
  }

  void forward(const KernelArguments& arguments) override {
    context_.use_threads();
    forward_.run(context_, {{DNNL_ARG_SRC, arguments.inputs[0]}, {DNNL_ARG_DST, arguments.outputs[0]}});
  }
  void backward(const KernelArguments& arguments) override {
    context_.use_threads();
    if (!arguments.input_gradients[0]) return;
    backward_.run(context_, {{DNNL_ARG_DIFF_DST, arguments.output_gradients[0]},
                             {DNNL_ARG_DIFF_SRC, arguments.input_gradients[0]}});
  }
  int64_t workspace_bytes() const override { return workspace_bytes_; }

 private:
  const Context& context_;
  Primitive forward_, backward_;
  int64_t workspace_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> make_pool2d_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<Pool2dKernel>(context, dynamic_cast<const Pool2d&>(request.definition), request.part);
}

std::unique_ptr<Kernel> make_pool1d_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<Pool2dKernel>(context, dynamic_cast<const Pool1d&>(request.definition).image,
                                        to_image(request.part));
}

}  // namespace ff::cpu
