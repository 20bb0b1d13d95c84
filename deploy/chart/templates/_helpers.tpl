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

{{/* Constraints for the manager's replicas; those without a selector get that of its pods. */}}
{{- define "kruise.manager.spread" -}}
{{- $default := list (dict "maxSkew" 1 "topologyKey" "topology.kubernetes.io/zone" "whenUnsatisfiable" "ScheduleAnyway") -}}
{{- $selector := dict "matchLabels" (include "kruise.manager.selector" . | fromYaml) -}}
{{- $spread := list -}}
{{- range .Values.manager.topologySpreadConstraints | default $default -}}
{{- $own := dict "labelSelector" $selector "maxSkew" 1 "whenUnsatisfiable" "ScheduleAnyway" -}}
{{- $spread = append $spread (mergeOverwrite $own (deepCopy .)) -}}
{{- end -}}
{{- toYaml $spread -}}
{{- end -}}

{{/* Kinds of OpenKruise that people make objects of, by API group; those whose CRD is in this chart are served. */}}
{{- define "kruise.unserved" -}}
{{- $kinds := dict
      "apps.kruise.io" (list "AdvancedCronJob" "BroadcastJob" "CloneSet" "ContainerRecreateRequest" "DaemonSet" "EphemeralJob"
        "ImageListPullJob" "ImagePullJob" "PersistentPodState" "PodProbeMarker" "ResourceDistribution" "SidecarSet" "StatefulSet"
        "UnitedDeployment" "WorkloadSpread")
      "policy.kruise.io" (list "PodUnavailableBudget") -}}
{{- $names := dict -}}
{{- range $path, $_ := .Files.Glob "files/crds/*.yaml" -}}
{{- $_ := set $names (get (get (get ($.Files.Get $path | fromYaml) "spec") "names") "kind") true -}}
{{- end -}}
{{- $found := dict -}}
{{- range $group, $list := $kinds -}}
{{- range $kind := $list -}}
{{- if not (hasKey $names $kind) -}}
{{- $_ := set $found $kind $group -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $found -}}
{{- end -}}
