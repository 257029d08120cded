import { defineConfig } from "vite";

// Airflow's UI gives its own React, router and Chakra to plugins: with them, pages have its theme, its navigation and its session.
const GIVEN = {
  react: "React",
  "react-dom": "ReactDOM",
  "react/jsx-runtime": "ReactJSXRuntime",
  "react-router-dom": "ReactRouterDOM",
  "@chakra-ui/react": "ChakraUI",
};

export default defineConfig({
  define: { "process.env.NODE_ENV": '"production"' },
  build: {
    emptyOutDir: true,
    lib: { entry: "src/main.tsx", formats: ["iife"], name: "cdcPages", fileName: () => "pages.js" },
    rollupOptions: { external: Object.keys(GIVEN), output: { globals: GIVEN } },
    target: "es2022",
  },
  esbuild: { jsx: "automatic", legalComments: "eof" },
});
