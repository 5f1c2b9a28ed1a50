# rcad with its command line. CPU:  docker build -t rcad .
# CUDA: docker build -t rcad:cuda --build-arg TORCH=cu130 .   then: docker run --gpus all -v "$PWD:/data" rcad:cuda train ...
FROM python:3.12-slim

# Triton compiles its launchers with a C compiler when a GPU is used.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*

# The builds of torch: "cpu", or "cu130" and the like.
ARG TORCH=cpu
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /opt/rcad
COPY constraints.txt ./
RUN pip install --index-url "https://download.pytorch.org/whl/${TORCH}" --extra-index-url https://pypi.org/simple \
    -c constraints.txt torch numpy
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY src src
COPY methods methods
COPY tools/index_readme.py tools/index_readme.py
RUN pip install -c constraints.txt '.[bench]' && rcad --version

RUN useradd --create-home --uid 1000 rcad && mkdir /data && chown rcad /data
USER 1000
WORKDIR /data
ENTRYPOINT ["rcad"]
CMD ["--help"]
