{{- define "headrace.name" -}}
{{- $name := .Values.fullnameOverride | default (contains "headrace" .Release.Name | ternary .Release.Name (printf "%s-headrace" .Release.Name)) -}}
{{- $name | trunc 32 | trimSuffix "-" -}}
{{- end }}

{{- define "headrace.selector" -}}
app.kubernetes.io/name: headrace
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: gateway
{{- end }}

{{- define "headrace.labels" -}}
{{ include "headrace.selector" . }}
{{ include "headrace.common" . }}
{{- end }}

{{- define "headrace.common" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "headrace.objectLabels" -}}
app.kubernetes.io/name: headrace
app.kubernetes.io/instance: {{ .Release.Name }}
{{ include "headrace.common" . }}
{{- end }}

{{- define "headrace.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "headrace.name" .) "default") }}
{{- end }}

{{- define "headrace.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{- define "headrace.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "headrace.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* Environment variables: {"env": {NAME: text}, "secrets": {NAME: {name, key}}} */ -}}
{{- define "headrace.variables" -}}
{{- range $name, $value := .env }}
- name: {{ $name }}
  value: {{ $value | toString | quote }}
{{- end }}
{{- range $name, $from := .secrets }}
- name: {{ $name }}
  valueFrom: {secretKeyRef: {name: {{ $from.name }}, key: {{ $from.key }}}}
{{- end }}
{{- end }}

{{- /* Where pods run: nodeSelector, tolerations, affinity, priorityClassName of a gateway or runtime. */ -}}
{{- define "headrace.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}
