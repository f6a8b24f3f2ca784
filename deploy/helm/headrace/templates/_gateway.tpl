{{- /* Parts of the pods that read the gateway's file: the gateways, and the jobs before an installation. */ -}}
{{- define "headrace.gatewayEnv" -}}
- name: HEADRACE_NAME
  value: {{ include "headrace.name" . }}
- name: HEADRACE_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: HEADRACE_POD
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
{{- if .Values.gateway.zoneFromNode }}
- name: ZONE
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['topology.kubernetes.io/zone']"}}
{{- end }}
{{ include "headrace.variables" .Values | trim }}
{{- end }}

{{- define "headrace.gatewayMounts" -}}
- {name: config, mountPath: /etc/headrace, readOnly: true}
- {name: temporary, mountPath: /tmp}
{{- range .Values.secretFiles }}
- {name: secret-{{ . }}, mountPath: /etc/headrace-secrets/{{ . }}, readOnly: true}
{{- end }}
{{- end }}

{{- /* {"root": $, "config": the ConfigMap of the file} */ -}}
{{- define "headrace.gatewayVolumes" -}}
- name: config
  configMap: {name: {{ .config }}}
- name: temporary
  emptyDir: {}
{{- range .root.Values.secretFiles }}
- name: secret-{{ . }}
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- end }}

{{- define "headrace.configData" -}}
{{ toYaml (merge (dict "headrace.yaml" .Values.config) .Values.configFiles) }}
{{- end }}

{{- /* A job before an installation or upgrade: {"root": $, "name": NAME, "args": words, "env": further variables}. Its
       pods have no service account, and reach only what the policy of the same name allows. */ -}}
{{- define "headrace.job" -}}
{{- $name := printf "%s-%s" (include "headrace.name" .root) .name -}}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ $name }}
  labels: {{- include "headrace.jobLabels" . | nindent 4 }}
  annotations: {{- include "headrace.hook" (dict "weight" .weight) | nindent 4 }}
spec:
  backoffLimit: 1
  activeDeadlineSeconds: {{ .seconds }}
  template:
    metadata:
      labels: {{- include "headrace.jobLabels" . | nindent 8 }}
    spec:
      serviceAccountName: default
      automountServiceAccountToken: false
      enableServiceLinks: false
      restartPolicy: Never
      securityContext: {{- include "headrace.podSecurity" .root | nindent 8 }}
      {{- with .root.Values.imagePullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: {{ .name }}
          image: {{ include "headrace.image" .root }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args: {{ toJson .args }}
          workingDir: /var/lib/headrace
          env:
            {{- include "headrace.gatewayEnv" .root | trim | nindent 12 }}
            {{- with .env }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          resources:
            requests: {cpu: 100m, memory: 256Mi}
            limits: {memory: 512Mi}
          securityContext: {{- include "headrace.containerSecurity" .root | nindent 12 }}
          volumeMounts:
            - {name: state, mountPath: /var/lib/headrace}
            {{- include "headrace.gatewayMounts" .root | trim | nindent 12 }}
      volumes:
        - name: state
          emptyDir: {}
        {{- include "headrace.gatewayVolumes" (dict "root" .root "config" (printf "%s-before" (include "headrace.name" .root))) | trim | nindent 8 }}
      {{- include "headrace.placement" (omit .root.Values.gateway "affinity") | trim | nindent 6 }}
{{- end }}

{{- define "headrace.jobLabels" -}}
app.kubernetes.io/name: headrace
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .name }}
{{ include "headrace.common" .root }}
{{- end }}

{{- define "headrace.hook" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-weight: {{ .weight | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
