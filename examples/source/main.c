/* Tones from a table in place of a microphone.  Everything lies in static memory: nothing is allocated. */
#include "predict.h"

#include <math.h>
#include <stdio.h>

static unsigned char workspace[PREDICT_WORKSPACE + 64];

int main(void) {
  static const float tones[4] = {440.0f, 660.0f, 880.0f, 1320.0f};
  void *aligned = (void *)(((uintptr_t)workspace + 63) / 64 * 64);
  int i, k, wrong = 0;
  for (k = 0; k < 4; k++) {
    float x[256], likely[4];
    int32_t tone;
    for (i = 0; i < 256; i++) x[i] = sinf(6.2831853f * tones[k] * (float)i / 8000.0f + (float)k);
    predict(x, &tone, likely, aligned);
    printf("%6.0f Hz: heard %6.0f Hz, %.0f %% sure\n", tones[k], tones[tone], 100 * likely[tone]);
    wrong += tone != k;
  }
  return wrong;
}
