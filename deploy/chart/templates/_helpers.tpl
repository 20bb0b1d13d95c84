{{- define "kruise.namespace" -}}
{{- .Values.installation.namespace | default .Release.Namespace -}}
{{- end -}}

{{- define "kruise.labels" -}}
app.kubernetes.io/name: kruise
app.kubernetes.io/part-of: kruise
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "kruise.manager.selector" -}}
app.kubernetes.io/name: kruise
control-plane: controller-manager
{{- end -}}

{{- define "kruise.daemon.selector" -}}
app.kubernetes.io/name: kruise
control-plane: daemon
{{- end -}}

{{/* Reference of an image. Context: dict "root" $ "image" (one of the image values). */}}
{{- define "kruise.image" -}}
{{- with .root.Values.image.registry }}{{ . | trimSuffix "/" }}/{{ end -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end -}}

{{/* Labels of pods, with their selector. Context: dict "root" $ "selector" (name of a template). */}}
{{- define "kruise.podLabels" -}}
{{ include .selector .root }}
app.kubernetes.io/part-of: kruise
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
{{- end -}}

{{/* What a pod learns about itself. */}}
{{- define "kruise.downwardEnv" -}}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: POD_IP
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
- name: NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
{{- end -}}

{{/* The runtime's socket belongs to root; nothing else of root is left. */}}
{{- define "kruise.daemon.securityContext" -}}
{{- $own := dict "runAsUser" 0 "runAsGroup" 0 "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL")) -}}
{{- toYaml (mergeOverwrite $own (deepCopy .Values.daemon.securityContext)) -}}
{{- end -}}
