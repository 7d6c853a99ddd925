# dsabench with its reference runtime on a CPU:
#
#   docker build -t dsabench .
#   docker run --rm -v "$PWD/results:/work/results" dsabench sweep local
#
# SGLang is not in it: mount or name one with runtime.launch, or start dsabench in an image that has it.
FROM python:3.12-slim
COPY . /opt/dsabench
RUN pip install --no-cache-dir uv==0.13.9 \
    && uv pip install --system --no-cache --torch-backend cpu torch==2.13.0 \
    && uv pip install --system --no-cache -c /opt/dsabench/constraints.txt "/opt/dsabench[local]" \
    && rm -rf /opt/dsabench \
    && useradd --create-home --uid 1000 bench && mkdir /work && chown bench /work
USER 1000
WORKDIR /work
ENTRYPOINT ["dsabench"]
CMD ["--help"]
