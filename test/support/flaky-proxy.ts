export * from '../../cli/drill/flaky-proxy.ts';
