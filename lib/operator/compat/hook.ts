/** The one file the hook is made of. */
export const HOOK_FILE = 'svc-relay-compat.mjs';
const MARKER = '// managed-by: svc-relay compat v1';
const ANY_MARKER = /^\/\/ managed-by: svc-relay compat v\d+\s*$/;

/** The entry of this version and of 1.0.0, whatever directory they are installed in. */
const ENTRY_IMPORT = /\bimport\s*\(\s*["'][^"'\n]*svc-relay[^"'\n]*compat|\/(?:cli|plugin)\/compat\/index\.js["']/;

/** What a file in a hook directory is (contract 07 §5.4). */
export interface HookContent {
  /** Whether it loads the compat entry of some installation of this plugin. */
  references_bootstrap: boolean;
  /** Whether its first line says that these commands manage it. */
  managed_content: boolean;
  /** Whether it is, byte for byte, what this installation writes. */
  plugin_owned_content: boolean;
}

/**
 * The hook's text: one guarded import of the compat entry at an absolute path. A plugin that is gone or broken must
 * not keep the host's server from starting.
 */
export function hookText(entry: string): string {
  return `${MARKER}
// Lets an older agent API server gain routes it lacks. Remove with: svc relay compat remove
export async function register(app) {
  try {
    const compat = await import(${JSON.stringify(fileUrl(entry))});
    await compat.register(app);
  } catch (error) {
    console.warn(\`svc-relay compat is not loaded: \${error?.message ?? error}\`);
  }
}
`;
}

/** Looks at a hook file's text; `entry` is the compat entry of this installation, if there is one. */
export function judgeHook(text: string, entry: string | null): HookContent {
  return {
    references_bootstrap: ENTRY_IMPORT.test(text),
    managed_content: ANY_MARKER.test(text.split('\n', 1)[0] as string),
    plugin_owned_content: entry !== null && text === hookText(entry),
  };
}

/** The `file:` URL of an absolute path. */
export const fileUrl = (path: string): string => `file://${path.split('/').map(encodeURIComponent).join('/')}`;
