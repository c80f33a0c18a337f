{{/* What the pods of every component have in common. Arguments: root, component (a key of the values). */}}
{{- define "cachescope.pod" -}}
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- $values := index .root.Values .component }}
{{- range $field := list "nodeSelector" "tolerations" "affinity" }}
{{- with index $values $field }}
{{ $field }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
topologySpreadConstraints:
  {{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ $key }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "cachescope.selector" $ | nindent 8 }}
  {{- end }}
{{- end }}

{{/* Security context of a container: the restricted profile and a read-only root; no fixed UID, so that any platform may choose one. */}}
{{- define "cachescope.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* A probe that asks by HTTP. Arguments: path, port, scheme, period. */}}
{{- define "cachescope.probe" -}}
httpGet: {path: {{ .path }}, port: {{ .port }}, scheme: {{ .scheme | default "HTTP" }}}
periodSeconds: {{ .period }}
failureThreshold: 3
timeoutSeconds: 5
{{- end }}

{{/* The same for liveness: what hangs has nothing to drain, and its preStop hook would wait. */}}
{{- define "cachescope.liveness" -}}
{{ include "cachescope.probe" (merge (dict "period" 10) .) }}
terminationGracePeriodSeconds: 10
{{- end }}

{{/* Environment of every container that asks the API server. Arguments: root. */}}
{{- define "cachescope.environment" -}}
- {name: HOME, value: /tmp}
- {name: CACHESCOPE_SCOPE, value: {{ .root.Values.scope | quote }}}
- {name: CACHESCOPE_LOG_LEVEL, value: {{ .root.Values.logLevel | quote }}}
- {name: CACHESCOPE_NAMESPACE, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}}}
{{- end }}
