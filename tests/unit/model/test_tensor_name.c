/*
 * What tensors are for, by their names.
 */
#include "unit.h"

#include "model/tensor_name.h"

static void test_names(void **state)
{
    static const struct {
        const char *name;
        enum tensor_place place;
        enum tensor_part part;
        uint32_t layer;
        bool bias, matrix;
    } cases[] = {
        {"token_embd.weight", TENSOR_PLACE_INPUT, TENSOR_PART_TOKEN_EMBEDDING, 0, false, true},
        {"token_embd_norm.weight", TENSOR_PLACE_LAYER, TENSOR_PART_EMBEDDING_NORM, 0, false, false},
        {"output.weight", TENSOR_PLACE_OUTPUT, TENSOR_PART_OUTPUT, 0, false, true},
        {"output.bias", TENSOR_PLACE_OUTPUT, TENSOR_PART_OUTPUT, 0, true, false},
        {"output_norm.weight", TENSOR_PLACE_OUTPUT, TENSOR_PART_OUTPUT_NORM, 0, false, false},
        {"rope_freqs.weight", TENSOR_PLACE_EVERY, TENSOR_PART_OTHER, 0, false, false},
        {"blk.17.attn_q.weight", TENSOR_PLACE_LAYER, TENSOR_PART_Q, 17, false, true},
        {"blk.17.attn_q.bias", TENSOR_PLACE_LAYER, TENSOR_PART_Q, 17, true, false},
        {"blk.3.attn_q_norm.weight", TENSOR_PLACE_LAYER, TENSOR_PART_Q_NORM, 3, false, false},
        {"blk.0.ffn_up_exps.weight", TENSOR_PLACE_LAYER, TENSOR_PART_EXPERTS_UP, 0, false, true},
        {"blk.0.ssm_in.weight", TENSOR_PLACE_LAYER, TENSOR_PART_OTHER, 0, false, true},
        /* No layer at all: counted on both sides. */
        {"blk.x.attn_q.weight", TENSOR_PLACE_UNKNOWN, TENSOR_PART_OTHER, 0, false, true},
        {"blk..attn_q.weight", TENSOR_PLACE_UNKNOWN, TENSOR_PART_OTHER, 0, false, true},
        {"blk.4294967296.attn_q.weight", TENSOR_PLACE_UNKNOWN, TENSOR_PART_OTHER, 0, false, true},
        {"blk.1", TENSOR_PLACE_UNKNOWN, TENSOR_PART_OTHER, 0, false, true},
        {"outputs.weight", TENSOR_PLACE_UNKNOWN, TENSOR_PART_OTHER, 0, false, true},
        {"", TENSOR_PLACE_UNKNOWN, TENSOR_PART_OTHER, 0, false, true},
    };

    (void)state;
    for (size_t i = 0; i < UNIT_COUNT(cases); i++) {
        struct tensor_role r = tensor_name_role(cases[i].name, strlen(cases[i].name));

        if (r.place != cases[i].place || r.part != cases[i].part || r.bias != cases[i].bias ||
            r.matrix != cases[i].matrix ||
            (r.place == TENSOR_PLACE_LAYER && r.layer != cases[i].layer))
            fail_msg("%s: place %d, part %d, layer %u", cases[i].name, (int)r.place, (int)r.part,
                     r.layer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
