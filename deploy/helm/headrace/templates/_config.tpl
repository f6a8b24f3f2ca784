{{- /* What the chart reads from the gateway's file, as YAML: http, admin, grpc (ports), scheme, drain (seconds),
       endpoint_picker (port), services and inferencePools (discovered in Kubernetes). It refuses a file with which the gateway cannot serve in a pod. */ -}}
{{- define "headrace.facts" -}}
{{- if not .Values.config -}}
{{- fail "config: is empty. Give the gateway's file: --set-file config=headrace.yaml (deploy/helm/headrace/examples has values to start from)" -}}
{{- end -}}
{{- $file := fromYaml .Values.config -}}
{{- if hasKey $file "Error" -}}
{{- fail (printf "config: is not YAML: %s" $file.Error) -}}
{{- end -}}
{{- $listen := $file.listen | default dict -}}
{{- range $name := list "http" "admin" -}}
{{- if not (hasKey $listen $name) -}}
{{- fail (printf "config: listen.%s is missing, and its default is on loopback, where no other pod reaches it: listen on 0.0.0.0" $name) -}}
{{- end -}}
{{- end -}}
{{- $facts := dict "services" list "inferencePools" list -}}
{{- range $name := list "http" "admin" "grpc" "endpoint_picker" -}}
{{- with get $listen $name -}}
{{- if not (regexMatch "^(0\\.0\\.0\\.0|\\[::\\]):[1-9][0-9]{0,4}$" .) -}}
{{- fail (printf "config: listen.%s is %s: the chart needs 0.0.0.0:PORT or [::]:PORT" $name .) -}}
{{- end -}}
{{- $port := regexFind "[0-9]+$" . | int -}}
{{- if lt $port 1024 -}}
{{- fail (printf "config: listen.%s has port %d: the gateway does not run as root and needs a port from 1024 on" $name $port) -}}
{{- end -}}
{{- $_ := set $facts $name $port -}}
{{- end -}}
{{- end -}}
{{- $admin := dig "auth" "admin" dict $file -}}
{{- if not (get ($admin | default dict) "required") -}}
{{- fail "config: auth.admin.required is not true, and the gateway refuses an open admin listener on 0.0.0.0" -}}
{{- end -}}
{{- if and $listen.admin_tls (eq (dig "tls" "client_auth" "optional" $listen) "required") -}}
{{- fail "config: with listen.admin_tls and tls.client_auth required the kubelet's probes fail, because they have no certificate" -}}
{{- end -}}
{{- $_ := set $facts "adminScheme" ($listen.admin_tls | default false | ternary "HTTPS" "HTTP") -}}
{{- $_ := set $facts "tls" (hasKey $listen "tls") -}}
{{- $_ := set $facts "drain" (include "headrace.seconds" ($file.drain | default "30s") | int) -}}
{{- range $pool := $file.pools -}}
{{- with dig "discover" "kubernetes" dict $pool -}}
{{- $_ := set $facts "services" (append $facts.services (dict "namespace" (.namespace | default $.Release.Namespace))) -}}
{{- end -}}
{{- with dig "discover" "inference_pool" "" $pool -}}
{{- $named := kindIs "map" . | ternary . dict -}}
{{- $_ := set $facts "inferencePools" (append $facts.inferencePools (dict "namespace" (get $named "namespace" | default $.Release.Namespace))) -}}
{{- end -}}
{{- end -}}
{{- include "headrace.variablesExist" (dict "root" . "file" $file) -}}
{{- toYaml $facts -}}
{{- end }}

{{- /* The gateway's file as JSON, with the values of `env`, defaults and the chart's own names in place of variables.
       ${NAME} of a Secret stays as it is: the chart does not know its value. */ -}}
{{- define "headrace.file" -}}
{{- $values := merge (dict "HEADRACE_NAME" (include "headrace.name" .) "HEADRACE_NAMESPACE" .Release.Namespace) .Values.env -}}
{{- $text := fromYaml .Values.config | toRawJson -}}
{{- range regexFindAll "\\$\\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\\}" $text -1 | uniq -}}
{{- $parts := . | trimPrefix "${" | trimSuffix "}" | splitList ":-" -}}
{{- $name := first $parts -}}
{{- if hasKey $values $name -}}
{{- $quoted := get $values $name | toString | toRawJson -}}
{{- $text = replace . (substr 1 (len $quoted | add -1 | int) $quoted) $text -}}
{{- else if and (contains ":-" .) (not (hasKey $.Values.secrets $name)) -}}
{{- $text = replace . (rest $parts | join ":-") $text -}}
{{- end -}}
{{- end -}}
{{- $text -}}
{{- end }}

{{- /* A duration of the file (250ms, 10s, 5m, 1h) in whole seconds, rounded up. */ -}}
{{- define "headrace.seconds" -}}
{{- $text := . | toString | trim -}}
{{- if not (regexMatch "^[0-9]+(\\.[0-9]+)?\\s*(ms|s|min|m|h|d)$" $text) -}}
{{- fail (printf "config: drain is %s: write a duration such as 30s" $text) -}}
{{- end -}}
{{- $unit := regexFind "[a-z]+$" $text -}}
{{- $factor := get (dict "ms" "0.001" "s" "1" "min" "60" "m" "60" "h" "3600" "d" "86400") $unit -}}
{{- ceil (mulf (float64 (regexFind "^[0-9.]+" $text)) (float64 $factor)) | int -}}
{{- end }}

{{- /* Every ${NAME} without a default in the file is a variable of the pod. */ -}}
{{- define "headrace.variablesExist" -}}
{{- $own := list "HEADRACE_NAME" "HEADRACE_NAMESPACE" "HEADRACE_POD" "PATH" "HOME" "HOSTNAME" -}}
{{- if .root.Values.gateway.zoneFromNode -}}{{- $own = append $own "ZONE" -}}{{- end -}}
{{- $names := concat $own (keys .root.Values.env) (keys .root.Values.secrets) -}}
{{- range regexFindAll "\\$\\{[A-Za-z_][A-Za-z0-9_]*\\}" (toJson .file) -1 -}}
{{- $name := . | trimPrefix "${" | trimSuffix "}" -}}
{{- if not (has $name $names) -}}
{{- fail (printf "config: uses ${%s}, which is in neither `env` nor `secrets`" $name) -}}
{{- end -}}
{{- end -}}
{{- end }}
