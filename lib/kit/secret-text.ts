import { isSecretName } from './secret-names.ts';

export const HIDDEN = '[hidden]';

const PRIVATE_KEY = /-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]{0,30}PRIVATE KEY-----|$)/g;
/** Credentials recognised by their form. */
const FORMS =
  /\b(?:(?:sk|pk|rk|whsec)[-_][\w-]{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abeprs]-[\w-]{10,}|npm_\w{30,}|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*)/g;
const SCHEME = /\b(Bearer|Basic)(\s+)[\w.~+/=-]{6,}/gi;
/** `https://user:password@host`. */
const USER_INFO = /(:\/\/[^\s/:@]{0,128}:)[^\s/@]{1,256}(?=@)/g;
/** `NAME=value`, `"name": "value"`, `name: value`. */
const ASSIGNED = /(?<![\w-])([A-Za-z_][\w-]{0,63})(["']?\s{0,4}[=:]\s{0,4})("[^"]*"|'[^']*'|[^\s"'&;,|)}]+)/g;
/** `--password value`. */
const FLAG = /(?<!\S)(--?[A-Za-z][\w-]{0,63})(\s+)("[^"]*"|'[^']*'|[^\s"'-][^\s"']*)/g;

/**
 * A text without recognisable credentials, by their form or by the name before them (`isSecretName`). For display; no
 * guarantee. Pass a few thousand characters at most.
 */
export const hideSecrets = (text: string): string =>
  text
    .replace(PRIVATE_KEY, HIDDEN)
    .replace(SCHEME, `$1$2${HIDDEN}`)
    .replace(USER_INFO, `$1${HIDDEN}`)
    .replace(FORMS, HIDDEN)
    .replace(ASSIGNED, named)
    .replace(FLAG, named);

const named = (whole: string, name: string, between: string): string =>
  isSecretName(name) ? name + between + HIDDEN : whole;
