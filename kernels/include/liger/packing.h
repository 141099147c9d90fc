/* How the gate and the up projection of a gated MLP stand in memory. */
#ifndef LIGER_PACKING_H_
#define LIGER_PACKING_H_

enum {
  LIGER_NOT_PACKED = 0,
  LIGER_GATE_UP = 1,     /* [rows, gate width | up width] */
  LIGER_UP_GATE = 2,     /* [rows, up width | gate width] */
  LIGER_INTERLEAVED = 3, /* [rows, width pairs of (gate, up)] */
};

#endif /* LIGER_PACKING_H_ */
