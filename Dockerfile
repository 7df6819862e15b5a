# A server for an index:
#
#     docker build -t orbithash .
#     docker run --read-only --tmpfs /tmp -p 127.0.0.1:8000:8000 \
#         -e ORBITHASH_READ_KEY=… -v "$PWD/photos.orbit:/index:ro" -v "$PWD/photos:/images:ro" orbithash
#
# It listens on all addresses of the container, so it needs a key, or the argument --public.
FROM python:3.11-slim-bookworm AS wheel
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11-slim-bookworm
# The address of a package index with torch's CPU builds; without it, the GPU build is installed.
ARG TORCH_INDEX=""
COPY requirements.lock /tmp/requirements.lock
RUN --mount=from=wheel,source=/wheels,target=/wheels \
    wheel=$(echo /wheels/*.whl) \
    && sed -E 's/ \\$//; /--hash/d' /tmp/requirements.lock > /tmp/versions.txt \
    && pip install --no-cache-dir ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} \
        -c /tmp/versions.txt "${wheel}[serve,milvus]" \
    && useradd --create-home --uid 10001 orbithash
USER 10001
ENV NUMBA_CACHE_DIR=/tmp/numba \
    PYTHONUNBUFFERED=1
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/ready', timeout=4)"]
ENTRYPOINT ["orbithash", "serve"]
CMD ["/index", "--host", "0.0.0.0", "--images", "/images"]
