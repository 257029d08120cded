import { App } from "./App";

// Airflow's UI imports this file and takes the component from here.
Reflect.set(globalThis, "AirflowPlugin", App);
