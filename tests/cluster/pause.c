/* The sandbox container's process: it holds a pod's namespaces open and collects
 * orphans until it is told to end. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, 0);
    for (;;) {
        int got = 0;
        sigwait(&set, &got);
        if (got != SIGCHLD)
            return 0;
        while (waitpid(-1, 0, WNOHANG) > 0)
            ;
    }
}
