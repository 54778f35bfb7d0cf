# syntax=docker/dockerfile:1
# The server with the embedded encoder, OCR and the reader, on a CPU. It downloads nothing.
#   docker build -t visar .
#   docker run -p 127.0.0.1:8764:8764 -e VISAR_TOKEN=… -v visar-index:/index visar

# Python 3.11.16: every test runs with 3.11.
FROM python:3.11-slim@sha256:9c900dea9e8fb7e16277c179b555cc72d29a352dbc33cff48ad5a0412fd5bfc7 AS build
WORKDIR /source
COPY requirements/image.txt requirements/image.txt
# Packages are checked by their hashes.
RUN python -m venv /opt/visar \
    && /opt/visar/bin/pip install --no-cache-dir --require-hashes --requirement requirements/image.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/visar/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
    && /opt/visar/bin/pip uninstall --yes hatchling pip

FROM python:3.11-slim@sha256:9c900dea9e8fb7e16277c179b555cc72d29a352dbc33cff48ad5a0412fd5bfc7
# No Debian packages are needed: every image with apt has what the wheels link to.
RUN useradd --create-home --uid 10001 visar \
    && install --directory --owner=visar --group=visar /index
COPY --from=build /opt/visar /opt/visar
ENV PATH=/opt/visar/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    VISAR_INDEX=/index
USER 10001
VOLUME /index
EXPOSE 8764
# Checks that it answers questions. A full disk is reported, but is no reason to restart.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "from urllib.request import Request, urlopen; from visar.network import own_token; urlopen(Request('http://127.0.0.1:8764/api/v1/ready', headers={'Authorization': f'Bearer {own_token()}'}), timeout=4)"]
ENTRYPOINT ["visar"]
# Other machines need a token: set VISAR_TOKEN, or VISAR_TOKEN_FILE to the path of a file.
CMD ["serve", "--host", "0.0.0.0"]
