# syntax=docker/dockerfile:1
# The server with the embedded encoder, OCR and the reader, on a processor. Nothing is downloaded when it runs.
#   docker build -t visar .
#   docker run -p 127.0.0.1:8764:8764 -e VISAR_TOKEN=… -v visar-index:/index visar

# Python 3.11: what every test runs with.
FROM python:3.11-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN python -m venv /opt/visar \
    && /opt/visar/bin/pip install --no-cache-dir '.[ocr,reader,server]' \
    && /opt/visar/bin/pip uninstall --yes pip

FROM python:3.11-slim
# No package of Debian is needed: what the wheels link to, every image with apt has.
RUN useradd --create-home --uid 10001 visar \
    && install --directory --owner=visar --group=visar /index
COPY --from=build /opt/visar /opt/visar
ENV PATH=/opt/visar/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    VISAR_INDEX=/index
USER 10001
VOLUME /index
EXPOSE 8764
# The page itself, which needs no token.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8764/', timeout=4)"]
ENTRYPOINT ["visar"]
# Off loopback the server wants a token: VISAR_TOKEN, or a file named by VISAR_TOKEN_FILE.
CMD ["serve", "--host", "0.0.0.0"]
