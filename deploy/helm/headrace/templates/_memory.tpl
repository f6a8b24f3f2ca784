{{- /* Bytes of a quantity: of Kubernetes (512Mi, 1.5G) or of the file (512MiB, 2GB). */ -}}
{{- define "headrace.bytes" -}}
{{- $text := . | toString | nospace -}}
{{- $number := regexFind "^[0-9.]+" $text -}}
{{- $unit := trimPrefix $number $text | trimSuffix "B" -}}
{{- $factors := dict "" 1 "m" 0.001 "k" 1e3 "K" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 -}}
{{- if not (and $number (hasKey $factors $unit)) -}}
{{- fail (printf "%s is no size: write one such as 512MiB" $text) -}}
{{- end -}}
{{- mulf (float64 $number) (get $factors $unit | float64) | int64 -}}
{{- end }}

{{- /* The resources of the gateway. Each worker may hold http.max_held, and needs 256 MiB beside it, as the supervisor of
       several does. The memory limit is at least the sum: by default it is the sum, and a lower one is refused. */ -}}
{{- define "headrace.gatewayResources" -}}
{{- $file := include "headrace.file" . | fromJson -}}
{{- $http := $file.http | default dict -}}
{{- $workers := $file.workers | default 1 | int64 -}}
{{- $own := mul 268435456 (gt $workers 1 | ternary (add $workers 1) $workers) -}}
{{- $body := include "headrace.bytes" ($http.max_body | default "32MiB") | int64 -}}
{{- $held := max 2147483648 (mul 24 $body) -}}
{{- with $http.max_held -}}{{- $held = include "headrace.bytes" . | int64 -}}{{- end -}}
{{- $needed := add $own (mul $workers $held) -}}
{{- $neededMi := divf $needed 1048576 | ceil | int64 -}}
{{- $resources := deepCopy .Values.gateway.resources -}}
{{- $limits := $resources.limits | default dict -}}
{{- with $limits.memory -}}
{{- $limit := include "headrace.bytes" . | int64 -}}
{{- if lt $limit $needed -}}
{{- $rest := div (sub $limit $own) $workers -}}
{{- $advice := printf "write gateway.resources.limits.memory: %dMi" $neededMi -}}
{{- if ge $rest (mul 6 $body) -}}
{{- $advice = printf "%s, or http: {max_held: %dMiB} in the file" $advice (div $rest 1048576) -}}
{{- end -}}
{{- fail (printf "gateway.resources.limits.memory: %s is less than the %d MiB that the file lets the gateway use (http.max_held for each of %d workers, and 256 MiB for each process), so the kernel would kill it: %s" (toString .) $neededMi $workers $advice) -}}
{{- end -}}
{{- else -}}
{{- $_ := set $resources "limits" (merge (dict "memory" (printf "%dMi" $neededMi)) $limits) -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end }}
