# One image for every role: agents, orchestrator, eavesdropper, audit and page differ in their command alone.
#
#   docker build -t dpp2 .
#
# Another base works as well if `python3` is 3.11 or newer there and `python3 -m venv` makes environments.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
RUN python3 -m venv /opt/dpp2
# Dependencies first: they change less often than the code, and their layer is kept while it does.
COPY pyproject.toml constraints.txt ./
RUN /opt/dpp2/bin/python -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; print(*p['dependencies'], *p['optional-dependencies']['page'], sep='\n')" \
      > requirements.txt \
 && /opt/dpp2/bin/pip install --quiet -c constraints.txt -r requirements.txt
COPY README.md LICENSE ./
COPY dpp2 dpp2
COPY node node
COPY orchestrator orchestrator
COPY adversary adversary
COPY store store
COPY studies studies
COPY page page
COPY experiments experiments
# What only builds and tests need stays behind: the packages' own tests, pip, setuptools.
RUN /opt/dpp2/bin/pip install --quiet --no-deps . \
 && find /opt/dpp2/lib -type d -name tests -prune -exec rm -rf {} + \
 && /opt/dpp2/bin/pip uninstall --quiet --yes setuptools pip

FROM ${BASE_IMAGE}
COPY --from=build /opt/dpp2 /opt/dpp2
# /home/dpp2 is a node's home: a named volume that is mounted there belongs to the same user.
RUN mkdir -p /home/dpp2 /etc/dpp2 && chown 10001:10001 /home/dpp2
ENV PATH=/opt/dpp2/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    OMP_NUM_THREADS=1 \
    OPENBLAS_NUM_THREADS=1 \
    MPLCONFIGDIR=/tmp
USER 10001:10001
WORKDIR /home/dpp2
EXPOSE 7000
# For agents. AGENTS is what `--agents` says, PROBE how to ask: with TLS "--tls FOLDER" of the certificate for probes.
HEALTHCHECK --interval=60s --timeout=10s --start-period=30s \
  CMD dpp2 node --probe --agents "${AGENTS:-0}" --listen 127.0.0.1:7000 ${PROBE:---plaintext}
ENTRYPOINT ["dpp2"]
CMD ["--help"]
