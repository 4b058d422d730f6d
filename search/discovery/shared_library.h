// A library that is looked for when the program runs: without it the program does without what it tells.
#pragma once

#include <dlfcn.h>

#include <string>

namespace ff::discovery {

class SharedLibrary {
 public:
  explicit SharedLibrary(const std::string& name) : handle_(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (!handle_) failure_ = dlerror();
  }
  ~SharedLibrary() {
    if (handle_) dlclose(handle_);
  }
  SharedLibrary(const SharedLibrary&) = delete;

  // What the library, or a function, failed with; "" while nothing did.
  const std::string& failure() const { return failure_; }

  // Sets `function` to that of the name; to null where the library has none.
  template <typename Function>
  void find(const char* name, Function*& function) {
    function = handle_ ? reinterpret_cast<Function*>(dlsym(handle_, name)) : nullptr;
    if (!function && failure_.empty()) failure_ = std::string("has no function ") + name;
  }
  // One that older versions of the library lack.
  template <typename Function>
  void find_optional(const char* name, Function*& function) {
    function = handle_ ? reinterpret_cast<Function*>(dlsym(handle_, name)) : nullptr;
  }

 private:
  void* handle_;
  std::string failure_;
};

}  // namespace ff::discovery
