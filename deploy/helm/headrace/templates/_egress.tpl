{{- /* Places that the gateway's file names, as JSON: a list of {host, port, scheme}. The host is empty if a Secret has
       it, and the port then is the usual one of the scheme. */ -}}
{{- define "headrace.places" -}}
{{- $ports := dict "http" 80 "https" 443 "grpc" 80 "grpcs" 443 "postgresql" 5432 "redis" 6379 "rediss" 6379 "amqp" 5672 "amqps" 5671 "kafka" 9092 "mqtt" 1883 "mqtts" 8883 "nats" 4222 "tls" 4222 "s3" 443 "sqs" 443 -}}
{{- $file := include "headrace.file" . | fromJson -}}
{{- /* Addresses of others: nothing is sent to them. */ -}}
{{- with $file.console -}}{{- $_ := unset . "url" -}}{{- end -}}
{{- with $file.http -}}{{- $_ := unset . "cors" -}}{{- end -}}
{{- $places := list -}}
{{- range regexFindAll "\"[a-z][a-z0-9+.-]*://[^\"\\s\\\\]+\"" (toRawJson $file) -1 | uniq -}}
{{- $url := trimAll "\"" . -}}
{{- $scheme := regexFind "^[a-z0-9]+" $url -}}
{{- $authority := regexReplaceAll "^[^:]+://([^/?#]*).*$" $url "${1}" -}}
{{- if hasKey $ports $scheme -}}
{{- range splitList "," (regexReplaceAll "^.*@" $authority "") -}}
{{- $port := regexFind ":[0-9]+$" . | trimPrefix ":" | default (get $ports $scheme) | int -}}
{{- $host := regexReplaceAll ":[0-9]+$" . "" | trimAll "[]" -}}
{{- if or (contains "${" $host) (has $scheme (list "s3" "sqs")) -}}{{- $host = "" -}}{{- end -}}
{{- $places = append $places (dict "host" $host "port" $port "scheme" $scheme) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $state := $file.state | default dict -}}
{{- range $field, $scheme := dict "database" "postgresql" "redis" "redis" -}}
{{- if hasPrefix "${" (get $state $field | default "" | toString) -}}
{{- $places = append $places (dict "host" "" "port" (get $ports $scheme) "scheme" $scheme) -}}
{{- end -}}
{{- end -}}
{{- range $pool := $file.pools -}}
{{- with dig "discover" "dns" "" $pool -}}
{{- $places = append $places (dict "host" (regexReplaceAll ":[0-9]+$" . "") "port" (regexFind "[0-9]+$" . | int) "scheme" "dns") -}}
{{- end -}}
{{- with dig "discover" "srv" "" $pool -}}
{{- $places = append $places (dict "host" (regexReplaceAll "^(_[^.]+\\.)*" . "") "port" 0 "scheme" "srv") -}}
{{- end -}}
{{- end -}}
{{- toJson $places -}}
{{- end }}

{{- /* Rules of a NetworkPolicy for {"root": $, "places": a list of places}. A policy knows no names: a name outside of the
       cluster opens its port to any address, and a Service opens the pods of its namespace, whose ports may differ
       from the Service's. */ -}}
{{- define "headrace.egress" -}}
{{- $rules := list -}}
{{- $open := list -}}
{{- range .places -}}
{{- $host := .host -}}
{{- $ports := .port | int | eq 0 | ternary list (list (dict "port" (int .port))) -}}
{{- if or (eq $host "localhost") (hasPrefix "127." $host) (eq $host "::1") -}}
{{- else if regexMatch "^[0-9]+(\\.[0-9]+){3}$" $host -}}
{{- $rules = append $rules (dict "ports" $ports "to" (list (dict "ipBlock" (dict "cidr" (printf "%s/32" $host))))) -}}
{{- else if contains ":" $host -}}
{{- $rules = append $rules (dict "ports" $ports "to" (list (dict "ipBlock" (dict "cidr" (printf "%s/128" $host))))) -}}
{{- else if and $host (or (not (contains "." $host)) (regexMatch "\\.svc(\\.|$)" $host)) -}}
{{- $labels := splitList "." (regexReplaceAll "\\.svc(\\..*)?$" $host "") -}}
{{- $namespace := gt (len $labels) 1 | ternary (last $labels) $.root.Release.Namespace -}}
{{- $rules = append $rules (include "headrace.toNamespace" (dict "namespace" $namespace "ports" list) | fromJson) -}}
{{- else if $ports -}}
{{- $open = append $open (int .port) -}}
{{- end -}}
{{- end -}}
{{- with $open | uniq | sortAlpha -}}
{{- $ports := list -}}
{{- range . -}}{{- $ports = append $ports (dict "port" (int .)) -}}{{- end -}}
{{- $rules = append $rules (dict "ports" $ports) -}}
{{- end -}}
{{- with $rules | uniq -}}{{- toYaml . -}}{{- end -}}
{{- end }}

{{- /* A rule for all pods of a {"namespace", "ports"}, as JSON. */ -}}
{{- define "headrace.toNamespace" -}}
{{- $peers := list (dict "namespaceSelector" (dict "matchLabels" (dict "kubernetes.io/metadata.name" .namespace))) -}}
{{- .ports | empty | ternary (dict "to" $peers) (dict "to" $peers "ports" .ports) | toJson -}}
{{- end }}

{{- /* Rules for the pods that the file discovers, except those of the release's own runtimes, which have a rule. */ -}}
{{- define "headrace.discoveredEgress" -}}
{{- $rules := list -}}
{{- range $pool := (include "headrace.file" . | fromJson).pools -}}
{{- with dig "discover" "kubernetes" dict $pool -}}
{{- $runtime := .service | toString | trimPrefix (printf "%s-" (include "headrace.name" $)) -}}
{{- if not (and (hasKey $.Values.runtimes $runtime) (eq (.namespace | default $.Release.Namespace) $.Release.Namespace)) -}}
{{- $port := regexFind "^[0-9]+$" (.port | default "" | toString) -}}
{{- $rules = append $rules (include "headrace.toNamespace" (dict "namespace" (.namespace | default $.Release.Namespace) "ports" ($port | empty | ternary list (list (dict "port" (int $port))))) | fromJson) -}}
{{- end -}}
{{- end -}}
{{- with dig "discover" "inference_pool" "" $pool -}}
{{- $named := kindIs "map" . | ternary . dict -}}
{{- $rules = append $rules (include "headrace.toNamespace" (dict "namespace" (get $named "namespace" | default $.Release.Namespace) "ports" list) | fromJson) -}}
{{- end -}}
{{- end -}}
{{- with $rules | uniq -}}{{- toYaml . -}}{{- end -}}
{{- end }}
