"""The pieces of a Kubernetes manifest as text, so that what comes out has comments. Braces are for `str.format`."""

from __future__ import annotations

HEAD = """\
# Written by `{by}`.
#
# docs/multi-machine.md has the steps, the Secrets among them. An agent's noise key is in no Secret at all: the node
# draws it into its own volume when it first runs.
"""

NAMESPACE = """\
apiVersion: v1
kind: Namespace
metadata:
  name: dpp2
"""

SERVICE = """\
# One address per pod: agent-0-0.agents.dpp2.svc and so on. A node that restarts must be found before it is ready.
apiVersion: v1
kind: Service
metadata:
  name: agents
  namespace: dpp2
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {app: dpp2-agent}
  ports:
    - {name: grpc, port: 7000}
"""

PUBLIC = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: public
  namespace: dpp2
data:
"""

CLOSED = """\
# Nobody talks to anybody unless a policy below says so.
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: closed
  namespace: dpp2
spec:
  podSelector: {}
  policyTypes: [Ingress, Egress]
"""

NAMES = """\
# Everybody may ask the cluster's name service.
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: names
  namespace: dpp2
spec:
  podSelector: {}
  policyTypes: [Egress]
  egress:
    - to:
        - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}
          podSelector: {matchLabels: {k8s-app: kube-dns}}
      ports:
        - {protocol: UDP, port: 53}
        - {protocol: TCP, port: 53}
"""

POLICY = """\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: agent-{agent}
  namespace: dpp2
spec:
  podSelector: {{matchLabels: {{app: dpp2-agent, agent: "{agent}"}}}}
  policyTypes: [Ingress, Egress]
  ingress:
    - from:
        - podSelector: &neighbours
            matchLabels: {{app: dpp2-agent}}
            matchExpressions: [{{key: agent, operator: In, values: [{neighbours}]}}]
        - podSelector: {{matchLabels: {{app: dpp2-orchestrator}}}}
      ports: [{{port: {port}}}]
  egress:
    - to:
        - podSelector: *neighbours
      ports: [{{port: {port}}}]
"""

ORCHESTRATOR_POLICY = """\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: orchestrator
  namespace: dpp2
spec:
  podSelector: {matchLabels: {app: dpp2-orchestrator}}
  policyTypes: [Ingress, Egress]
  egress:
    - to:
        - podSelector: {matchLabels: {app: dpp2-agent}}
      ports: [{port: 7000}]
"""

CONFINED = """\
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
"""

# Kubernetes gives a Secret's files to root and a group. Whoever reads keys here wants to be their only reader, so they
# are copied, mode 0400, into memory.
POD = """\
      automountServiceAccountToken: false
      securityContext:
        runAsNonRoot: true
        runAsUser: 10001
        runAsGroup: 10001
        fsGroup: 10001
        seccompProfile: {{type: RuntimeDefault}}
      initContainers:
        - name: secrets
          image: dpp2
          imagePullPolicy: IfNotPresent
{confined}\
          command:
            - sh
            - -ec
            - cd /secret; for file in {names}; do install -D -m 0400 $file {secrets}/$file; done
          volumeMounts:
            - {{name: secret, mountPath: /secret, readOnly: true}}
            - {{name: own, mountPath: {secrets}}}
      volumes:
        - name: secret
          secret:
            secretName: {secret}
            defaultMode: 0440
            items:
{items}\
        - name: own
          emptyDir: {{medium: Memory}}
        - name: tmp
          emptyDir: {{}}
        - name: public
          configMap: {{name: public}}
"""

AGENT = """\
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: agent-{agent}
  namespace: dpp2
spec:
  serviceName: agents
  replicas: 1
  selector:
    matchLabels: {{app: dpp2-agent, agent: "{agent}"}}
  template:
    metadata:
      labels: {{app: dpp2-agent, agent: "{agent}"}}
    spec:
      topologySpreadConstraints: # on different machines as far as there are any
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: {{app: dpp2-agent}}
{pod}\
      containers:
        - name: node
          image: dpp2
          imagePullPolicy: IfNotPresent
{confined}\
          args:
            - node
            - --agents={agent}
            - --home=/home/dpp2/home
            - --keys=/home/dpp2/keys
            - --eta-key={secrets}/eta.key
            - --experiment=/etc/dpp2/experiment.toml
            - --cluster=/etc/dpp2/cluster.toml
            - --tls={secrets}/node
          ports:
            - {{name: grpc, containerPort: {port}}}
          # By a command, since the probe that Kubernetes has for gRPC presents no certificate.
          readinessProbe: &probe
            exec:
              command: [dpp2, node, --probe, --agents={agent}, "--listen=127.0.0.1:{port}", --tls={secrets}/probe]
            initialDelaySeconds: 5
            periodSeconds: 60
            timeoutSeconds: 10
          livenessProbe:
            <<: *probe
            initialDelaySeconds: 60
            failureThreshold: 5
          resources:
            requests: {{cpu: 250m, memory: 256Mi}}
            limits: {{memory: 1Gi}}
          volumeMounts:
            - {{name: home, mountPath: /home/dpp2}}
            - {{name: own, mountPath: {secrets}, readOnly: true}}
            - {{name: public, mountPath: /etc/dpp2, readOnly: true}}
            - {{name: tmp, mountPath: /tmp}}
  volumeClaimTemplates:
    - metadata:
        name: home
      spec:
        accessModes: [ReadWriteOnce]
        resources:
          requests: {{storage: 1Gi}}
"""

STATE = """\
# The run's id is kept on a volume, so that an orchestrator that dies goes on with the same run. At the end the nodes
# end, too, and are started again to wait for the next run; a new one begins when the state file is gone.
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: orchestrator
  namespace: dpp2
spec:
  accessModes: [ReadWriteOnce]
  resources:
    requests: {storage: 10Mi}
"""

ORCHESTRATOR = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: orchestrator
  namespace: dpp2
spec:
  backoffLimit: 50
  template:
    metadata:
      labels: {{app: dpp2-orchestrator}}
    spec:
      restartPolicy: OnFailure
{pod}\
        - name: state
          persistentVolumeClaim: {{claimName: orchestrator}}
      containers:
        - name: orchestrator
          image: dpp2
          imagePullPolicy: IfNotPresent
{confined}\
          args:
            - orchestrate
            - --experiment=/etc/dpp2/experiment.toml
            - --cluster=/etc/dpp2/cluster.toml
            - --state=/home/dpp2/orchestrator.json
            - --tls={secrets}
          volumeMounts:
            - {{name: state, mountPath: /home/dpp2}}
            - {{name: own, mountPath: {secrets}, readOnly: true}}
            - {{name: public, mountPath: /etc/dpp2, readOnly: true}}
            - {{name: tmp, mountPath: /tmp}}
"""
