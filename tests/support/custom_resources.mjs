// Validates objects of other projects' kinds by the projects' own schemas: a JSON list on stdin, problems on stdout.
import { GRPCRoute } from "@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1/GRPCRoute";
import { HTTPRoute } from "@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1/HTTPRoute";
import { ScaledObject } from "@kubernetes-models/keda/keda.sh/v1alpha1/ScaledObject";
import { PrometheusRule } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PrometheusRule";
import { ServiceMonitor } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/ServiceMonitor";
import { readFileSync } from "node:fs";

const models = { GRPCRoute, HTTPRoute, ScaledObject, PrometheusRule, ServiceMonitor };
const problems = [];
for (const object of JSON.parse(readFileSync(0, "utf8"))) {
  const Model = models[object.kind];
  try {
    if (Model === undefined) throw new Error("has no schema");
    if (Model.apiVersion !== object.apiVersion) throw new Error(`has another version than ${Model.apiVersion}`);
    new Model(object).validate();
  } catch (error) {
    problems.push(`${object.kind} ${object.metadata.name}: ${error.message}`);
  }
}
console.log(JSON.stringify(problems));
