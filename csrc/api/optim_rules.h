// What the C entry knows of each optimizer: how many states it has, which scalars it reads, in
// which range, and whether it needs norms first.
#ifndef MPCORE_API_OPTIM_RULES_H_
#define MPCORE_API_OPTIM_RULES_H_

#include <cmath>
#include <limits>

#include "mpcore/optim.h"

namespace mpcore {

struct OptimRule {
  static constexpr int kMaxScalars = 6, kMaxFlags = 2;

  // A real scalar and its range; low_open, high_open: without that end.
  struct Scalar {
    const char* name;
    double mpcore_optim_args::* value;
    double low, high;
    bool low_open, high_open;
    const char* range;
    bool contains(double x) const {
      return (low_open ? x > low : x >= low) && (high_open ? x < high : x <= high);
    }
  };
  // 0 or 1.
  struct Flag {
    const char* name;
    int32_t mpcore_optim_args::* value;
  };

  int (*states)(const mpcore_optim_args& a);
  Scalar scalars[kMaxScalars] = {};  // ends where a name is null, as does flags
  Flag flags[kMaxFlags] = {};
  bool measures = false;  // a first pass sums squares, a second one updates
};

namespace optim_scalars {

using A = mpcore_optim_args;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr OptimRule::Scalar kBeta1{"beta_1", &A::beta_1, 0, 1, false, true, "[0, 1)"};
constexpr OptimRule::Scalar kBeta1Closed{"beta_1", &A::beta_1, 0, 1, false, false, "[0, 1]"};
constexpr OptimRule::Scalar kBeta1Divisor{"beta_1", &A::beta_1, 0, 1, true, false, "(0, 1]"};
constexpr OptimRule::Scalar kBeta2{"beta_2", &A::beta_2, 0, 1, false, true, "[0, 1)"};
constexpr OptimRule::Scalar kBeta2Closed{"beta_2", &A::beta_2, 0, 1, false, false, "[0, 1]"};
constexpr OptimRule::Scalar kEpsilon{"epsilon", &A::epsilon, 0, kInf, false, true, "[0, inf)"};
constexpr OptimRule::Scalar kMomentum{"momentum", &A::momentum, 0, 1, false, false, "[0, 1]"};
constexpr OptimRule::Scalar kRho{"rho", &A::rho, 0, 1, false, false, "[0, 1]"};
constexpr OptimRule::Scalar kProduct{
    "momentum_product", &A::momentum_product, 0, 1, false, true, "[0, 1)"};
constexpr OptimRule::Scalar kPower{
    "learning_rate_power", &A::learning_rate_power, -kInf, 0, true, false, "(-inf, 0]"};
constexpr OptimRule::Scalar kPositiveRate{"learning_rate", &A::learning_rate, 0, kInf, true, true,
                                          "(0, inf)"};
constexpr OptimRule::Scalar kL1{"l1", &A::l1, 0, kInf, false, true, "[0, inf)"};
constexpr OptimRule::Scalar kL2{"l2", &A::l2, 0, kInf, false, true, "[0, inf)"};
constexpr OptimRule::Scalar kShrinkage{"l2_shrinkage", &A::l2_shrinkage, 0, kInf, false,
                                       true,           "[0, inf)"};
constexpr OptimRule::Scalar kBeta{"beta", &A::beta, 0, kInf, false, true, "[0, inf)"};

}  // namespace optim_scalars

// The rule, or null where there is no such optimizer.
inline const OptimRule* optim_rule(mpcore_optimizer optimizer) {
  using namespace optim_scalars;
  constexpr auto kOne = [](const A&) { return 1; };
  constexpr auto kTwo = [](const A&) { return 2; };
  // In the order of the enumerators.
  static constexpr OptimRule kRules[] = {
      {[](const A& a) { return a.momentum == 0 ? 0 : 1; },
       {kMomentum},
       {{"nesterov", &A::nesterov}}},
      {[](const A& a) { return a.amsgrad ? 3 : 2; },
       {kBeta1, kBeta2, kEpsilon},
       {{"amsgrad", &A::amsgrad}}},
      {kTwo, {kBeta1, kBeta2Closed, kEpsilon}},
      {kTwo, {kBeta1, kBeta2, kEpsilon, kProduct}},
      {[](const A& a) { return 1 + (a.momentum != 0) + (a.centered != 0); },
       {kRho, kMomentum, kEpsilon},
       {{"centered", &A::centered}}},
      {kOne, {kEpsilon}},
      {kTwo, {kRho, kEpsilon}},
      {kTwo, {kPositiveRate, kPower, kL1, kL2, kShrinkage, kBeta}},
      {kOne, {kBeta1Closed, kBeta2Closed}},
      {kTwo, {kBeta1, kBeta2, kEpsilon}, {}, true},
      {kTwo, {kBeta1Divisor, kBeta2, kEpsilon}},
  };
  constexpr auto kCount = static_cast<mpcore_optimizer>(sizeof(kRules) / sizeof(kRules[0]));
  static_assert(kCount == MPCORE_OPTIMIZER_SCHEDULE_FREE_ADAMW + 1);
  return optimizer >= 0 && optimizer < kCount ? &kRules[optimizer] : nullptr;
}

}  // namespace mpcore

#endif  // MPCORE_API_OPTIM_RULES_H_
