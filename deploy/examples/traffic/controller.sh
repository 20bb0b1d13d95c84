#!/bin/sh
# Takes pods of a CloneSet out of a load balancer before they are changed in place or deleted, and puts them back when they are updated.
#
#   controller.sh NAMESPACE SELECTOR
#
# It needs kubectl and the right to get, list and patch pods. The hooks of the set (cloneset.yaml) hold a pod for as long as its label
# example.com/traffic is "attached": take the label away, and the pod may be changed or deleted; put it back, and it is in normal life again.
set -eu
namespace=$1
selector=$2
label=example.com/traffic

# Here a real controller speaks to its load balancer, and returns when that has done it.
detach() { echo "detach $1"; }
attach() { echo "attach $1"; }

pods() {
  kubectl get pods -n "$namespace" -l "$selector" -o "jsonpath={range .items[*]}{.metadata.name} \
{.metadata.labels['lifecycle\.apps\.kruise\.io/state']} {.metadata.labels['example\.com/traffic']}{'\n'}{end}"
}

while :; do
  pods | while read -r pod state traffic; do
    case "$state/$traffic" in
      PreparingUpdate/attached | PreparingDelete/attached)
        detach "$pod"
        kubectl label pod -n "$namespace" "$pod" "$label-" ;;
      Updated/)
        attach "$pod"
        kubectl label pod -n "$namespace" "$pod" "$label=attached" ;;
    esac
  done
  sleep 1
done
