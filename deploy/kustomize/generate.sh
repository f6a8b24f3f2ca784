#!/bin/sh
# Writes base/headrace.yaml: the plain output of the chart with the values of its example quickstart.
set -eu
cd "$(dirname "$0")"
{
  echo "# Output of the chart, written by deploy/kustomize/generate.sh. Change it in an overlay, or change the chart."
  "${HELM:-helm}" template headrace ../helm/headrace --namespace headrace --no-hooks --values ../helm/headrace/examples/quickstart.yaml
} > base/headrace.yaml.new
mv base/headrace.yaml.new base/headrace.yaml
