"""The environment variables that a started program inherits: settings of the machine, and no credentials.

The environment of a server contains the keys of upstreams and databases. Programs that run the code of models or of
other servers inherit only the variables that are listed here, and no variable that looks like a credential.
"""

import re
from collections.abc import Mapping, MutableMapping, Sequence
from fnmatch import fnmatchcase

NAMES = frozenset({
    "CC", "CFLAGS", "CONDA_PREFIX", "CURL_CA_BUNDLE", "CXX", "CXXFLAGS", "HEADRACE_CACHE", "HEADRACE_EMULATED_TILES",
    "HOME", "HOSTNAME", "JAVA_HOME", "LANG", "LANGUAGE", "LDFLAGS", "LOGNAME", "NUMEXPR_MAX_THREADS", "PATH",
    "REQUESTS_CA_BUNDLE", "SHELL", "SSL_CERT_DIR", "SSL_CERT_FILE", "TEMP", "TERM", "TMP", "TMPDIR",
    "TOKENIZERS_PARALLELISM", "TZ", "USER", "VIRTUAL_ENV",
    "ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "all_proxy", "http_proxy", "https_proxy", "no_proxy",
})  # fmt: skip
PREFIXES = (
    "ASCEND_", "CUBLAS_", "CUDA_", "CUDNN_", "DNNL_", "GLOO_", "GOMP_", "HF_", "HIP_", "HSA_", "KMP_", "LC_", "LD_",
    "MALLOC_", "MKL_", "NCCL_", "NUMBA_", "NVIDIA_", "OMP_", "ONEDNN_", "OPENBLAS_", "OPENVINO_", "ORT_", "PIP_",
    "PYTHON", "PYTORCH_", "ROCM_", "ROCR_", "TBB_", "TF_", "TORCH", "TRANSFORMERS_", "TRITON_", "VECLIB_", "VLLM_",
    "XDG_", "XLA_",
)  # fmt: skip
_SECRET = re.compile(
    r"(?:^|_)(?:KEYS?|APIKEY|TOKENS?|SECRETS?|PASS|PASSWD|PASSWORD|PASSPHRASE|CREDENTIALS?|AUTH|COOKIE|DSN|PAT)(?:_|$)",
    re.IGNORECASE,
)
_WITH_USER = re.compile(r"//[^/\s]*@")
"""A URL with a user name or a password, as for proxies and package indexes."""


def inherited(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that every child process may inherit."""
    return {name: value for name, value in variables.items() if _is_listed(name) and not _WITH_USER.search(value)}


def drop_unlisted(variables: MutableMapping[str, str], passed: Sequence[str]) -> None:
    """Delete the variables that are neither listed nor match one of the patterns `passed`."""
    allowed = inherited(variables)
    for name in [name for name in variables if name not in allowed]:
        if not any(fnmatchcase(name, pattern) for pattern in passed):
            del variables[name]


def _is_listed(name: str) -> bool:
    return name in NAMES or (name.startswith(PREFIXES) and not _SECRET.search(name))
