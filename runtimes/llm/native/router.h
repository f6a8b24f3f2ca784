// A token's experts, as `runtimes/llm/model/experts.py` chooses them.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "model.h"

namespace headrace {

enum class Scoring : int { SOFTMAX = 0, SIGMOID = 1, SOFTMAX_OF_CHOSEN = 2, SPARSEMIXER = 3 };

constexpr float NEVER = -1e30f;

// The logits become their softmax. What is NEVER stays out.
inline void softmax(float* logits, int count) {
    const float most = *std::max_element(logits, logits + count);
    float sum = 0;
    for (int i = 0; i < count; i++) sum += logits[i] = logits[i] == NEVER ? 0.f : std::exp(logits[i] - most);
    for (int i = 0; i < count; i++) logits[i] /= sum;
}

// Phi-3.5's: each of two experts is weighed among the logits that are near to its own.
inline void sparsemixer(const float* logits, int count, float jitter, int* chosen, float* weights) {
    std::vector<float> left(logits, logits + count), near(count);
    for (int turn = 0; turn < 2; turn++) {
        const int best = std::max_element(left.begin(), left.end()) - left.begin();
        for (int i = 0; i < count; i++) {
            const bool far = (left[best] - logits[i]) / std::max(std::fabs(logits[i]), left[best]) > 2 * jitter;
            near[i] = far ? NEVER : left[i];
        }
        softmax(near.data(), count);
        chosen[turn] = best, weights[turn] = near[best];
        left[best] = NEVER;
    }
}

// NEVER for experts outside of the groups whose two best are the best.
inline void keep_best_groups(float* choice, const Shape& shape) {
    const int size = shape.experts / shape.groups;
    std::vector<float> best(shape.groups);
    for (int group = 0; group < shape.groups; group++) {
        float first = NEVER, second = NEVER;
        for (int i = group * size; i < (group + 1) * size; i++) {
            if (choice[i] > first)
                second = first, first = choice[i];
            else
                second = std::max(second, choice[i]);
        }
        best[group] = first + second;
    }
    std::vector<float> ordered = best;
    std::nth_element(ordered.begin(), ordered.begin() + shape.chosen_groups - 1, ordered.end(), std::greater<>());
    int left = shape.chosen_groups;
    for (int group = 0; group < shape.groups; group++)
        if (left > 0 && best[group] >= ordered[shape.chosen_groups - 1])
            left--;
        else
            std::fill_n(choice + group * size, size, NEVER);
}

// `logits` [experts] are overwritten; `chosen` and `weights` are [chosen].
inline void route(const Shape& shape, const Vector& selection_bias, float* logits, int* chosen, float* weights) {
    const auto scoring = (Scoring)shape.scoring;
    if (scoring == Scoring::SPARSEMIXER) return sparsemixer(logits, shape.experts, shape.jitter, chosen, weights);
    if (scoring == Scoring::SOFTMAX) softmax(logits, shape.experts);
    if (scoring == Scoring::SIGMOID)
        for (int i = 0; i < shape.experts; i++) logits[i] = 1 / (1 + std::exp(-logits[i]));
    static thread_local std::vector<float> choice;
    choice.assign(logits, logits + shape.experts);
    for (size_t i = 0; i < selection_bias.size(); i++) choice[i] += selection_bias[i];
    if (shape.groups > 1) keep_best_groups(choice.data(), shape);
    float sum = 0;
    for (int k = 0; k < shape.chosen; k++) {
        chosen[k] = std::max_element(choice.begin(), choice.end()) - choice.begin();
        choice[chosen[k]] = -INFINITY;
        sum += weights[k] = logits[chosen[k]];
    }
    if (scoring == Scoring::SOFTMAX_OF_CHOSEN) softmax(weights, shape.chosen);
    for (int k = 0; k < shape.chosen; k++)
        weights[k] *= shape.normalized ? shape.expert_scale / std::max(sum, 1e-20f) : shape.expert_scale;
}

}  // namespace headrace
