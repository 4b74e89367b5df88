"""Pieces of CUDA C, as text: plain C but for ``__device__``, so that a C compiler can check them without a device."""

__all__ = ["BFLOAT16_CODE", "BFLOAT16_OPERATIONS"]

BFLOAT16_CODE = """
union FloatBits { unsigned int bits; float value; };

__device__ static inline float bfloat16_value(unsigned short half) {
    union FloatBits x;
    x.bits = (unsigned int)half << 16;
    return x.value;
}

/* To nearest, ties to even; any NaN becomes the quiet one of its sign: as ml_dtypes does. */
__device__ static inline unsigned short bfloat16_bits(float value) {
    union FloatBits x;
    x.value = value;
    if (value != value) return (unsigned short)((x.bits >> 16 & 0x8000u) | 0x7FC0u);
    return (unsigned short)((x.bits + 0x7FFFu + (x.bits >> 16 & 1u)) >> 16);
}

/* As NumPy: NaN wins, the left one first. */
__device__ static inline float least(float left, float right) {
    return left != left || left < right ? left : right;
}

__device__ static inline float largest(float left, float right) {
    return left != left || left > right ? left : right;
}
"""

BFLOAT16_OPERATIONS = {
    "add": "bfloat16_value(left) + bfloat16_value(right)",
    "multiply": "bfloat16_value(left) * bfloat16_value(right)",
    "minimum": "least(bfloat16_value(left), bfloat16_value(right))",
    "maximum": "largest(bfloat16_value(left), bfloat16_value(right))",
}
"""Expressions of ``left`` and ``right``, bits of bfloat16, by NumPy's name; their values are float."""
