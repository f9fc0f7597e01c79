/** What `/relay/info` may announce, and whether a host machine is needed for it. One line per area that exists. */
const needsHost: Record<string, boolean> = {
  bridge: false,
  chat: false,
  clipboard: true,
  desktop: false,
  media: false,
  model_reasoning_capabilities_v1: false,
  notifications: false,
  pairing: false,
  proactive: false,
  profiles: true,
  sessions: false,
  terminal: true,
};

/** What works on this relay, less what its deployment leaves out, sorted (contract 07 §3.1). Clients offer only what is named here. */
export function capabilities({ hasHost, without = [] }: { hasHost: boolean; without?: readonly string[] }): string[] {
  return Object.keys(needsHost)
    .filter((name) => (hasHost || !needsHost[name]) && !without.includes(name))
    .sort();
}
