"""Variables of a shell: those that programs need, and those that hold credentials or may hold some."""

NEEDED = {
    "PATH": "/usr/bin", "HOME": "/home/me", "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "4", "CUDA_VISIBLE_DEVICES": "0",
    "HF_HOME": "/cache", "HTTP_PROXY": "http://proxy:3128", "TOKENIZERS_PARALLELISM": "false", "LD_LIBRARY_PATH": "/l",
    "PIP_NO_INDEX": "1", "VLLM_CPU_KVCACHE_SPACE": "4", "PYTHONPATH": "/p", "SSL_CERT_FILE": "/c.pem",
}  # fmt: skip
SECRETS = {
    "OPENAI_API_KEY": "sk-1", "PROVIDER_KEY": "sk-2", "HF_TOKEN": "hf-1", "VLLM_API_KEY": "v",
    "AWS_SECRET_ACCESS_KEY": "a",
    "KEY_PEPPER": "p", "REDIS_PASSWORD": "r", "DATABASE_URL": "postgresql://u:p@h/d",
    "PIP_INDEX_URL": "https://u:p@pypi",
    "HTTPS_PROXY": "http://user:pass@proxy:3128", "HUGGING_FACE_HUB_TOKEN": "h", "TF_AUTH": "x", "ANYTHING": "else",
}  # fmt: skip
