"""Names of C: like those of the program, and different from all that a compiler or a library has given a meaning."""
from __future__ import annotations

import re

_KEYWORDS = """
    alignas alignof asm auto bool break case catch char class const const_cast constexpr continue decltype default
    delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long main
    mutable namespace new noexcept nullptr operator private protected public register reinterpret_cast requires restrict
    return short signed sizeof static static_assert static_cast struct switch template this thread_local throw true try
    typedef typeid typename typeof union unsigned using virtual void volatile wchar_t while and and_eq bitand bitor
    compl concept not not_eq or or_eq xor xor_eq workspace work weights
"""
_MACROS = """
    I NULL EOF NAN INFINITY HUGE_VAL HUGE_VALF HUGE_VALL BUFSIZ DOMAIN SING OVERFLOW UNDERFLOW PLOSS TLOSS RAND_MAX
    SEEK_SET SEEK_CUR SEEK_END CHAR_BIT EXIT_FAILURE EXIT_SUCCESS EDOM ERANGE EILSEQ SIGINT SIGFPE TRUE FALSE BIG_ENDIAN
    LITTLE_ENDIAN BYTE_ORDER complex imaginary noreturn errno assert stdin stdout stderr offsetof va_list near far min
    max small interface linux unix i386 vax mips sun arm sparc isfinite isinf isnan isnormal signbit fpclassify
    isgreater isgreaterequal isless islessequal islessgreater isunordered signgam std conj size_t ptrdiff_t max_align_t
    float_t double_t errno_t ssize_t off_t time_t FILE
"""
_MATH = """
    acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 exp10 expm1 fabs fdim floor fma
    fmax fmin fmod frexp hypot ilogb ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround modf nan
    nearbyint nextafter nexttoward pow pow10 remainder remquo rint round scalb scalbln scalbn sin sincos sinh sqrt tan
    tanh tgamma trunc drem finite significand j0 j1 jn y0 y1 yn cabs cacos cacosh carg casin casinh catan catanh ccos
    ccosh cexp cimag clog clog10 conj cpow cproj creal csin csinh csqrt ctan ctanh CMPLX
"""
_LIBRARY = """
    abort abs accept access alarm alloca atexit atof atoi atol atoll bcmp bcopy bind brk bsearch bzero calloc chdir
    chmod chown clock clone close closedir connect creat ctime difftime div dup dup2 environ execl execv execve exit
    fclose feof ferror fflush ffs fgetc fgets fileno fopen fork fprintf fputc fputs fread free freopen fscanf fseek
    fsync ftell fwrite getc getchar getenv getpid gets gmtime index ioctl isalnum isalpha isatty iscntrl isdigit isgraph
    islower isprint ispunct isspace isupper isxdigit kill labs ldiv link listen llabs lldiv localtime longjmp lseek
    malloc mblen memccpy memchr memcmp memcpy memmove mempcpy memset mkdir mktime mmap mprotect munmap nanosleep nice
    open opendir pause perror pipe poll printf putc putchar putenv puts qsort raise rand random read readdir realloc
    recv remove rename rewind rindex rmdir sbrk scanf seek select send setbuf setenv setjmp setvbuf shutdown signal
    sleep snprintf socket sprintf srand srandom stat stpcpy strcasecmp strcat strchr strcmp strcoll strcpy strcspn
    strdup strerror strftime strlen strncasecmp strncat strncmp strncpy strndup strpbrk strrchr strsep strsignal strspn
    strstr strtod strtof strtok strtol strtoll strtoul strtoull strxfrm swab sync sysconf system tee time times timezone
    tmpfile tmpnam tolower toupper truncate tzset umask ungetc unlink gamma usleep vfork vprintf wait write
"""
#: what a parameter must not be called: words of C and C++, macros that headers define, functions that the code calls
RESERVED = frozenset([*_KEYWORDS.split(), *_MACROS.split(), "memcpy",
                      *(f"{f}{end}" for f in _MATH.split() for end in ("", "f", "l"))])
#: what a function must not be called besides: functions of the libraries that every program is linked with
LINKED = frozenset(_LIBRARY.split())
#: names in the code that is written, types of a fixed width and their limits, constants of math.h and float.h
_PATTERNS = re.compile(r"(aot|product|cholesky|random|kernel)_\w*|[acipstv]\d+_?|u?int\w*_t|U?INT\w*"
                       r"|(FLT|DBL|LDBL|FP|M|MATH|PTRDIFF|SIZE)_\w+|char(8|16|32)_t")


def identifier(wanted: str, default: str, used: set[str]) -> str:
    """A name of C like the one that is wanted, and different from those used, to which it is added."""
    name = re.sub(r"\W+", "_", wanted, flags=re.ASCII).strip("_") or default
    name = f"_{name}"[name[0] not in "0123456789":]
    if _PATTERNS.fullmatch(name):
        name = f"the_{name}"
    if name in used:
        name += "_"
    numbered, n = name, 2
    while numbered in used:
        numbered, n = f"{name}{n}", n + 1
    used.add(numbered)
    return numbered
