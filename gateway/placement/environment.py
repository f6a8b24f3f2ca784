"""The environment of a runtime: what a program needs of the machine, and what its section writes.

The gateway's own environment holds the keys of upstreams and databases. A runtime runs code of models and of other
people's servers, so it gets no variable that is not on this list, and none that looks like a credential.
"""

import re
from collections.abc import Mapping

from config.schema.config import RuntimeConfig

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
"""A URL that holds a name or a password, as those of proxies and package indexes may."""


def environment(ours: Mapping[str, str], written: Mapping[str, str], config: RuntimeConfig) -> dict[str, str]:
    """All variables of a runtime's process: the listed ones of `ours`, those `written` for it, and its secrets."""
    secret = {name: value.get_secret_value() for name, value in config.secrets.items()}
    return {**inherited(ours), **written, **secret}


def inherited(ours: Mapping[str, str]) -> dict[str, str]:
    """What of our environment every runtime may know."""
    return {name: value for name, value in ours.items() if _is_listed(name) and not _WITH_USER.search(value)}


def _is_listed(name: str) -> bool:
    return name in NAMES or (name.startswith(PREFIXES) and not _SECRET.search(name))
