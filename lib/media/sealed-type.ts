/** Media type of a sealed file (contract 12 §4), the only fact outside of the seal. */
export const SEALED_TYPE = 'application/vnd.svc-relay.sealed';
/** File name of a sealed file at the edge. */
export const SEALED_NAME = 'sealed';
