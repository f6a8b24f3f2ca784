{{- /* The parts of a runtime. Each takes {"root": $, "name": NAME, "runtime": VALUES}. */ -}}
{{- define "headrace.runtime.name" -}}
{{ include "headrace.name" .root }}-{{ .name }}
{{- end }}

{{- define "headrace.runtime.selector" -}}
app.kubernetes.io/name: headrace
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: runtime
headrace.io/runtime: {{ .name }}
{{- end }}

{{- define "headrace.runtime.image" -}}
{{- $image := .runtime.image | default dict -}}
{{- $own := .root.Values.image -}}
{{- if eq .runtime.kind "server" -}}
{{ required (printf "runtimes.%s.image.repository: is required for kind server" .name) $image.repository }}{{ with $image.digest }}@{{ . }}{{ else }}:{{ required (printf "runtimes.%s.image: needs a tag or a digest" $.name) $image.tag }}{{ end }}
{{- else if $image.digest -}}
{{ $image.repository | default $own.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository | default $own.repository }}:{{ $image.tag | default (printf "%s-%s" ($own.tag | default .root.Chart.AppVersion) .runtime.kind) }}
{{- end -}}
{{- end }}

{{- /* The seconds that the server takes to finish its requests after SIGTERM. */ -}}
{{- define "headrace.runtime.drain" -}}
{{ .runtime.drainSeconds | default 30 }}
{{- end }}

{{- define "headrace.runtime.repository" -}}
{{ .runtime.repository | default (dig "models" "mountPath" "/models" .runtime) }}
{{- end }}

{{- define "headrace.runtime.args" -}}
{{- if eq .runtime.kind "llm" }}
args:
  - runtime
  - llm
  - --model={{ required (printf "runtimes.%s.model: is required for kind llm" .name) .runtime.model }}
  - --served-name={{ .name }}
  - --host=0.0.0.0
  - --port=8000
  - --drain-seconds={{ include "headrace.runtime.drain" . }}
  {{- with .runtime.args }}{{ toYaml . | nindent 2 }}{{ end }}
{{- else if eq .runtime.kind "tensor" }}
args:
  - runtime
  - tensor
  - --repository={{ include "headrace.runtime.repository" . }}
  {{- range .runtime.add }}
  - --add={{ . }}
  {{- end }}
  - --host=0.0.0.0
  - --http-port=8000
  - --grpc-port=8001
  - --drain-timeout={{ include "headrace.runtime.drain" . }}s
  {{- with .runtime.args }}{{ toYaml . | nindent 2 }}{{ end }}
{{- else }}
{{- with .runtime.command }}
command: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .runtime.args }}
args: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{- define "headrace.runtime.port" -}}
{{ eq .runtime.kind "server" | ternary (.runtime.port | default 8000) 8000 }}
{{- end }}

{{- define "headrace.runtime.probes" -}}
{{- $own := dict "llm" "/health" "tensor" "/v2/health/ready" "server" "/health" -}}
{{- $path := .runtime.health | default (get $own .runtime.kind) -}}
startupProbe:
  httpGet: {path: {{ $path }}, port: http}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: {{ divf (.runtime.startSeconds | default 900) 5 | ceil | int }}
readinessProbe:
  httpGet: {path: {{ $path }}, port: http}
  periodSeconds: 5
  timeoutSeconds: 5
livenessProbe:
  httpGet: {path: {{ eq .runtime.kind "tensor" | ternary "/v2/health/live" $path }}, port: http}
  periodSeconds: 10
  timeoutSeconds: 10
  failureThreshold: 6
{{- end }}

{{- define "headrace.runtime.resources" -}}
{{- $resources := deepCopy (.runtime.resources | default dict) -}}
{{- with .runtime.gpus -}}
{{- $gpus := dict ($.runtime.gpuResource | default "nvidia.com/gpu") . -}}
{{- $resources = mergeOverwrite $resources (dict "limits" (merge (deepCopy $gpus) ($resources.limits | default dict))) -}}
{{- $resources = mergeOverwrite $resources (dict "requests" (merge (deepCopy $gpus) ($resources.requests | default dict))) -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end }}

{{- define "headrace.runtime.volumes" -}}
- name: cache
  emptyDir: {{ with .runtime.cacheSize }}{sizeLimit: {{ . }}}{{ else }}{}{{ end }}
- name: temporary
  emptyDir: {}
- name: shared-memory
  emptyDir: {medium: Memory, sizeLimit: {{ .runtime.sharedMemory | default "1Gi" }}}
{{- with .runtime.models }}
{{- if .volume }}
- name: models
  {{- toYaml .volume | nindent 2 }}
{{- end }}
{{- else }}
{{- if eq .runtime.kind "tensor" }}
- name: models
  emptyDir: {{ with .runtime.cacheSize }}{sizeLimit: {{ . }}}{{ else }}{}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "headrace.runtime.mounts" -}}
- {name: cache, mountPath: /var/lib/headrace}
- {name: temporary, mountPath: /tmp}
- {name: shared-memory, mountPath: /dev/shm}
{{- with .runtime.models }}
- {name: models, mountPath: {{ .mountPath | default "/models" }}, readOnly: {{ hasKey . "readOnly" | ternary .readOnly (hasKey . "volume") }}}
{{- else }}
{{- if eq .runtime.kind "tensor" }}
- {name: models, mountPath: {{ include "headrace.runtime.repository" . }}}
{{- end }}
{{- end }}
{{- end }}
