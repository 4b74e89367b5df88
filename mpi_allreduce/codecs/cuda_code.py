"""CUDA C of the codecs that work on a device, as text.

It is plain C but for ``__device__``, ``__global__`` and a few macros that :data:`ON_DEVICE` and :data:`ON_HOST` define
differently; so a C compiler checks it, bit by bit against the host's codecs, where there is no device.  On a device
32 threads, the lanes of a warp, share a group of elements; on the host there is one lane.  Compile without contraction
of products and sums (``--fmad=false``), which would round otherwise than the host does.
"""

__all__ = ["CODE", "FORMATS", "ON_DEVICE", "ON_HOST"]

ON_DEVICE = """
#define LANES 32
#define LANE (threadIdx.x % LANES)
#define WORKER ((long long)blockIdx.x * (blockDim.x / LANES) + threadIdx.x / LANES)
#define WORKERS ((long long)gridDim.x * (blockDim.x / LANES))
#define MARK(flags, bits) atomicOr(flags, bits)
#define extern_C extern "C"
__device__ static inline float largest_of_lanes(float value) {
    for (int apart = LANES / 2; apart; apart /= 2) {
        float other = __shfl_xor_sync(0xFFFFFFFFu, value, apart);
        value = value != value || value > other ? value : other; /* NaN stays */
    }
    return value;
}
"""

ON_HOST = """
#define __device__
#define __global__
#define LANES 1
#define LANE 0
#define WORKER 0
#define WORKERS 1
#define MARK(flags, bits) (*(flags) |= (bits))
#define extern_C
static inline float largest_of_lanes(float value) { return value; }
"""

CODE = """
#define CHUNK 32768LL
#define HEADER 8LL
#define NONFINITE 1u
#define OVERFLOW 2u
#define ELEMENTS 0
#define PACKET 1

union Bits { unsigned int bits; float value; };

__device__ static inline float as_float(unsigned int bits) { union Bits x; x.bits = bits; return x.value; }
__device__ static inline unsigned int as_bits(float value) { union Bits x; x.value = value; return x.bits; }
__device__ static inline float magnitude(float value) { return as_float(as_bits(value) & 0x7FFFFFFFu); }
__device__ static inline int is_finite(float value) { return (as_bits(value) & 0x7F800000u) != 0x7F800000u; }

/* To nearest, ties to even, as NumPy does; from 2**-14 down, adding 0.5 rounds to multiples of 2**-24. */
__device__ static inline unsigned short half_bits(float value) {
    unsigned int bits = as_bits(value), sign = bits >> 16 & 0x8000u, half;
    bits &= 0x7FFFFFFFu;
    if (bits > 0x7F800000u) {
        half = 0x7C00u + ((bits & 0x7FFFFFu) >> 13);
        half += half == 0x7C00u;
    } else if (bits >= 0x477FF000u) {
        half = 0x7C00u;
    } else if (bits >= 0x38800000u) {
        half = (bits + 0xFFFu + (bits >> 13 & 1u) - (112u << 23)) >> 13;
    } else {
        half = as_bits(as_float(bits) + 0.5f) - 0x3F000000u;
    }
    return (unsigned short)(sign | half);
}

__device__ static inline float half_value(unsigned short half) {
    unsigned int sign = (half & 0x8000u) << 16, exponent = half >> 10 & 31u, mantissa = half & 0x3FFu;
    if (exponent == 31u) return as_float(sign | 0x7F800000u | mantissa << 13);
    if (exponent == 0u) return as_float(sign | as_bits((float)mantissa * 5.9604644775390625e-8f));
    return as_float(sign | (exponent + 112u) << 23 | mantissa << 13);
}

/* Any NaN becomes the quiet one of its sign, as with ml_dtypes. */
__device__ static inline unsigned short brain_bits(float value) {
    unsigned int bits = as_bits(value);
    if (value != value) return (unsigned short)((bits >> 16 & 0x8000u) | 0x7FC0u);
    return (unsigned short)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

__device__ static inline long long padded(long long bytes) { return (bytes + 7) / 8 * 8; }
__device__ static inline long long least(long long a, long long b) { return a < b ? a : b; }

/* What was found in a number that this rank contributes or has summed up. */
__device__ static inline unsigned int found(float value, float largest) {
    return magnitude(value) <= largest ? 0u : is_finite(value) ? OVERFLOW : NONFINITE;
}

/* Two bytes for each element, one format or the other. */
__device__ static inline void encode_two(const float *values, unsigned char *packet, unsigned int *flags,
                                         long long count, float largest, float predivide, int brain) {
    unsigned short *wire = (unsigned short *)(packet + HEADER);
    unsigned int marks = 0;
    for (long long i = WORKER * LANES + LANE; i < padded(2 * count) / 2; i += WORKERS * LANES) {
        float value = i < count ? values[i] : 0.0f;
        marks |= found(value, largest);
        wire[i] = brain ? brain_bits(value) : half_bits(value / predivide);
    }
    if (marks) MARK(flags, marks);
}

extern_C __global__ void encode_fp16(const float *values, unsigned char *packet, unsigned int *flags, long long count,
                                     float largest, float predivide, long long unused) {
    encode_two(values, packet, flags, count, largest, predivide, 0);
}

extern_C __global__ void encode_bf16(const float *values, unsigned char *packet, unsigned int *flags, long long count,
                                     float largest, float unused, long long unused_too) {
    encode_two(values, packet, flags, count, largest, 1.0f, 1);
}

/* 8-bit integers: in each chunk the scales of its groups, then its codes. */
__device__ static inline long long scales_of(long long count, long long block) {
    return 4 * ((count + block - 1) / block);
}

__device__ static inline long long chunk_of(long long number, long long block) {
    return HEADER + number * padded(scales_of(CHUNK, block) + CHUNK);
}

extern_C __global__ void encode_int8(const float *values, unsigned char *packet, unsigned int *flags, long long count,
                                     float largest, float unused, long long block) {
    long long per_chunk = (CHUNK + block - 1) / block, whole = count / CHUNK, rest = count % CHUNK;
    long long groups = whole * per_chunk + (rest + block - 1) / block;
    unsigned int marks = 0;
    for (long long group = WORKER; group < groups; group += WORKERS) {
        long long chunk = group / per_chunk, first = group % per_chunk * block;
        long long size = least(CHUNK, count - chunk * CHUNK), end = least(first + block, size);
        const float *source = values + chunk * CHUNK;
        unsigned char *wire = packet + chunk_of(chunk, block);
        signed char *codes = (signed char *)(wire + scales_of(size, block));
        float peak = 0.0f, scale, factor;
        for (long long i = first + LANE; i < end; i += LANES) {
            float size_of_it = magnitude(source[i]);
            marks |= found(source[i], largest);
            peak = peak != peak || peak > size_of_it ? peak : size_of_it;
        }
        peak = largest_of_lanes(peak);
        scale = is_finite(peak) ? peak / 127.0f : as_float(0x7FC00000u);
        if (scale < 1.17549435e-38f) scale = 0.0f; /* its reciprocal may be infinite */
        factor = scale > 0.0f ? 1.0f / scale : 0.0f;
        if (LANE == 0) ((float *)wire)[first / block] = scale;
        for (long long i = first + LANE; i < end; i += LANES) {
            float scaled = source[i] * factor;
            scaled = scaled == scaled ? rintf(scaled) : 0.0f;
            codes[i] = (signed char)(scaled > 127.0f ? 127.0f : scaled < -127.0f ? -127.0f : scaled);
        }
        if (LANE == 0 && end == size)
            for (long long i = size; i < padded(scales_of(size, block) + size) - scales_of(size, block); i++)
                codes[i] = 0;
    }
    if (marks) MARK(flags, marks);
}

/* A header holds what is known of the block, and the number of the run. */
extern_C __global__ void write_header(unsigned char *packet, const unsigned int *flags, unsigned int key) {
    if (WORKER == 0 && LANE == 0) {
        ((unsigned int *)packet)[0] = *flags;
        ((unsigned int *)packet)[1] = key;
    }
}

__device__ static inline float read_fp16(const unsigned char *packet, long long i, long long count, float predivide,
                                         long long block) {
    float value = half_value(((const unsigned short *)(packet + HEADER))[i]);
    return predivide != 1.0f ? value * predivide : value;
}

__device__ static inline float read_bf16(const unsigned char *packet, long long i, long long count, float predivide,
                                         long long block) {
    return as_float((unsigned int)((const unsigned short *)(packet + HEADER))[i] << 16);
}

__device__ static inline float read_int8(const unsigned char *packet, long long i, long long count, float predivide,
                                         long long block) {
    long long chunk = i / CHUNK, place = i % CHUNK, size = least(CHUNK, count - chunk * CHUNK);
    const unsigned char *wire = packet + chunk_of(chunk, block);
    float code = (float)((const signed char *)(wire + scales_of(size, block)))[place];
    return code * ((const float *)wire)[place / block];
}

/* out = left + right, each of them numbers or a packet, in one pass; or out = left, if there is no right one. */
#define COMBINE(format)                                                                                         \\
extern_C __global__ void combine_##format(const void *left, int left_is, const void *right, int right_is,       \\
                                          float *out, unsigned int *flags, long long count, float predivide,    \\
                                          long long block) {                                                    \\
    const unsigned char *left_packet = (const unsigned char *)left, *right_packet = (const unsigned char *)right;\\
    for (long long i = WORKER * LANES + LANE; i < count; i += WORKERS * LANES) {                                \\
        float value = left_is == PACKET ? read_##format(left_packet, i, count, predivide, block)                \\
                                        : ((const float *)left)[i];                                             \\
        if (right)                                                                                              \\
            value = value + (right_is == PACKET ? read_##format(right_packet, i, count, predivide, block)       \\
                                                : ((const float *)right)[i]);                                   \\
        out[i] = value;                                                                                         \\
    }                                                                                                           \\
    if (WORKER == 0 && LANE == 0) {                                                                             \\
        if (left_is == PACKET) MARK(flags, left_packet[0]);                                                     \\
        if (right && right_is == PACKET) MARK(flags, right_packet[0]);                                          \\
    }                                                                                                           \\
}

COMBINE(fp16)
COMBINE(bf16)
COMBINE(int8)
"""

FORMATS = ("fp16", "bf16", "int8")
"""Names of the functions: ``encode_fp16``, ``combine_fp16``, ..."""
