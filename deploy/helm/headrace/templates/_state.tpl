{{- /* The most gateways that run at the same time. */ -}}
{{- define "headrace.mostReplicas" -}}
{{ eq .Values.autoscaling.kind "none" | ternary .Values.gateway.replicas .Values.autoscaling.maxReplicas }}
{{- end }}

{{- /* Whether the state database is one that all gateways share. A variable of a Secret is taken for Postgres: the
       check before the installation reads its value. */ -}}
{{- define "headrace.sharedDatabase" -}}
{{- $database := dig "state" "database" "" (include "headrace.file" . | fromJson) | toString -}}
{{- if and $database (not (hasPrefix "sqlite" $database)) -}}true{{- end -}}
{{- end }}

{{- /* Refuses values with which keys are lost with a pod, or differ between pods. */ -}}
{{- define "headrace.stateIsSafe" -}}
{{- $file := include "headrace.file" . | fromJson -}}
{{- $shared := include "headrace.sharedDatabase" . -}}
{{- $several := gt (include "headrace.mostReplicas" . | int) 1 -}}
{{- $volume := or .Values.gateway.persistence.size .Values.gateway.persistence.claim -}}
{{- $postgres := "state: {database: \"${DATABASE}\"} with the URL of a Postgres in `secrets`" -}}
{{- if and $volume $several -}}
{{- fail "gateway.persistence: a volume with SQLite is for one gateway: set gateway.replicas to 1 and autoscaling.kind to none, or use Postgres" -}}
{{- end -}}
{{- if not (or $volume (dig "auth" "pepper" "" $file)) -}}
{{- fail "config: auth.pepper is missing, so each pod makes a pepper of its own and refuses the keys of all others: write auth: {pepper: \"${PEPPER}\"} in the file, and PEPPER in `secrets`" -}}
{{- end -}}
{{- if not (or $volume $shared (include "headrace.ownsNoState" (dict "file" $file))) -}}
{{- if $several -}}
{{- fail (printf "config: state.database is SQLite, so each gateway has keys and usage of its own, and they end with its pod: write %s in the file, or set gateway.replicas to 1 with gateway.persistence.size: 1Gi" $postgres) -}}
{{- end -}}
{{- fail (printf "gateway.persistence: is absent and state.database is SQLite, so keys and usage end with the pod: set gateway.persistence.size: 1Gi, or write %s in the file" $postgres) -}}
{{- end -}}
{{- end }}

{{- /* Whether the gateways need no database: clients have keys of the file, certificates or tokens, and nothing is stored. */ -}}
{{- define "headrace.ownsNoState" -}}
{{- $stores := false -}}
{{- range $section := list "usage" "requests" "batches" "feedback" "webhooks" -}}
{{- if hasKey $.file $section -}}{{- $stores = true -}}{{- end -}}
{{- end -}}
{{- if regexMatch "\"(rollout|shadow|soft_budgets)\":" (toRawJson $.file) -}}{{- $stores = true -}}{{- end -}}
{{- $known := dig "auth" "jwt" list $.file -}}
{{- range $.file.tenants -}}
{{- $known = concat $known (.keys | default list) (.certificates | default list) -}}
{{- end -}}
{{- if and $known (not $stores) -}}true{{- end -}}
{{- end }}

{{- /* The tenants with a budget that each gateway counts for itself, as JSON; none if the usage in a shared database is
       counted too. */ -}}
{{- define "headrace.splitBudgets" -}}
{{- $file := include "headrace.file" . | fromJson -}}
{{- $tenants := list -}}
{{- if and (gt (include "headrace.mostReplicas" . | int) 1) (not (and (include "headrace.sharedDatabase" .) (hasKey $file "usage"))) -}}
{{- range $tenant := $file.tenants -}}
{{- $limits := list $tenant.limits -}}
{{- range $tenant.teams -}}{{- $limits = append $limits .limits -}}{{- end -}}
{{- range $limits -}}
{{- range kindIs "slice" . | ternary . (list .) -}}
{{- if and (kindIs "map" .) (get (. | default dict) "spend") (eq (get . "count" | default "host") "host") -}}
{{- $tenants = append $tenants $tenant.name -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $tenants | uniq | toJson -}}
{{- end }}
