{{/* Metadata of a policy and of its binding, which have one name. Arguments: root, name. */}}
{{- define "cachescopePolicies.metadata" -}}
name: {{ .root.Release.Name }}-{{ .name }}
labels:
  app.kubernetes.io/name: cachescope-policies
  app.kubernetes.io/component: {{ .name }}
  app.kubernetes.io/part-of: cachescope
  app.kubernetes.io/instance: {{ .root.Release.Name }}
  app.kubernetes.io/managed-by: {{ .root.Release.Service }}
  app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
  helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* One of our resources in the chosen namespaces, and nothing of anybody else's. Arguments: root, resource, operations. */}}
{{- define "cachescopePolicies.constraints" -}}
resourceRules:
  - apiGroups: [cachescope.dev]
    apiVersions: [v1alpha1]
    resources: [{{ .resource }}]
    operations: {{ toJson .operations }}
    scope: Namespaced
{{- with .root.Values.namespaceSelector }}
namespaceSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* User names of all operators, as a list in CEL. Argument: the root. */}}
{{- define "cachescopePolicies.operators" -}}
{{- $names := list }}
{{- range .Values.installations | default (list (dict "namespace" .Release.Namespace)) }}
{{- $names = append $names (printf "system:serviceaccount:%s:%s" .namespace (.serviceAccount | default "cachescope-operator")) }}
{{- end }}
{{- toJson $names }}
{{- end }}

{{/* The policy in force. Arguments: root, name; pools (whether the namespace's pools are its parameters). */}}
{{- define "cachescopePolicies.binding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  {{- include "cachescopePolicies.metadata" . | nindent 2 }}
spec:
  policyName: {{ .root.Release.Name }}-{{ .name }}
  validationActions: {{ toJson .root.Values.validationActions }}
  {{- if .pools }}
  # Every pool of the object's namespace in turn; one that forbids is enough.
  paramRef: {selector: {}, parameterNotFoundAction: Allow}
  {{- end }}
{{- end }}

{{/*
An object that is being deleted is left to those who finish that: Kubernetes' garbage collector takes off the finalizer that
`kubectl delete --cascade=foreground` puts on.
*/}}
{{- define "cachescopePolicies.finishing" -}}
- name: finishing
  expression: oldObject != null && has(oldObject.metadata.deletionTimestamp) && object.spec == oldObject.spec
{{- end }}

{{/* No new finalizers and owners; what is there from before may go. Argument: what the object is called. */}}
{{- define "cachescopePolicies.plainMetadata" -}}
- expression: >-
    !has(object.metadata.finalizers) || object.metadata.finalizers.all(name,
    oldObject != null && has(oldObject.metadata.finalizers) && name in oldObject.metadata.finalizers)
  message: {{ . }} has no finalizers, or its namespace could not end; leave metadata.finalizers out
- expression: >-
    !has(object.metadata.ownerReferences) || object.metadata.ownerReferences.all(owner,
    oldObject != null && has(oldObject.metadata.ownerReferences) &&
    oldObject.metadata.ownerReferences.exists(before, before.uid == owner.uid))
  message: {{ . }} has no owner, with which it would go; leave metadata.ownerReferences out
{{- end }}
